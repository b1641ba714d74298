//! The examples do what their READMEs say.

use host_tests::{
    envoy::{Envoy, workspace},
    filter,
    upstream::{Instruction, Upstream},
};
use std::{
    net::SocketAddr,
    process::{Output, Stdio},
};
use tokio::process::Command;

/// Runs `examples/python-client` against Envoy.
async fn python_client(envoy: SocketAddr) -> Output {
    Command::new("python3")
        .arg(workspace().join("examples/python-client/client.py"))
        .arg(format!("http://{envoy}/v1/charges"))
        .arg(r#"{"amount": 1000}"#)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .expect("python3 starts")
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

#[tokio::test]
async fn the_python_client_retries_what_may_be_retried_and_nothing_else() {
    let upstream = Upstream::start().await;
    let envoy = Envoy::with_filter(&upstream, filter::minimal())
        .start()
        .await;

    let plain = python_client(envoy.addr()).await;
    assert!(plain.status.success(), "{}", text(&plain.stderr));
    assert!(text(&plain.stdout).starts_with("201 replayed=false"));

    // Released: the same key again, until it works.
    upstream.reset();
    upstream.set_default(Instruction {
        status: Some(429),
        no_effect: true,
        ..Instruction::default()
    });
    let client = tokio::spawn(python_client(envoy.addr()));
    upstream.wait_for_requests(1).await;
    upstream.clear_default();
    let retried = client.await.expect("the client ends");
    assert!(retried.status.success(), "{}", text(&retried.stderr));
    assert_eq!(upstream.effects(), 1);
    let requests = upstream.requests();
    let keys: Vec<_> = requests.iter().map(|r| r.one("idempotency-key")).collect();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1]);

    // Unknown: it stops, and names the operation.
    upstream.reset();
    upstream.set_default(Instruction {
        status: Some(500),
        ..Instruction::default()
    });
    let unknown = python_client(envoy.addr()).await;
    assert!(!unknown.status.success());
    assert!(text(&unknown.stderr).starts_with("unknown: ask about operation "));
    assert_eq!(upstream.effects(), 1);
}
