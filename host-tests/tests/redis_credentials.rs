//! Who may speak to the store is Envoy's business: it adds the credential and the TLS, and the filter
//! knows neither.

use host_tests::{
    check::{refused, replayed, until},
    client::Request,
    envoy::{Envoy, config},
    filter::{self, key},
    store::{bridge, redis::Server},
    upstream::Upstream,
};
use serde_json::{Value, json};
use std::{fs, net::SocketAddr, path::Path, process::Command};
use tempfile::TempDir;

const HOST: &str = "store.internal";

/// A certificate for [`HOST`], signed by itself, and its key.
fn certificate(dir: &Path) {
    let done = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
        ])
        .args([
            "-nodes",
            "-days",
            "1",
            "-subj",
            "/CN=idempo-tests",
            "-addext",
        ])
        .arg(format!("subjectAltName=DNS:{HOST}"))
        .args(["-keyout", "key.pem", "-out", "certificate.pem"])
        .current_dir(dir)
        .output()
        .expect("openssl is installed");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// The secret, as an agent of the machine's would write it and Envoy watch it.
fn secret(dir: &Path, token: &str) {
    let answer = json!({"resources": [{
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
        "name": "store-token",
        "generic_secret": {"secret": {"inline_string": format!("Bearer {token}")}},
    }]});
    fs::write(dir.join("draft.json"), answer.to_string()).unwrap();
    fs::rename(dir.join("draft.json"), dir.join("token.json")).unwrap();
}

/// TLS before the bridge: a TCP proxy on a Unix socket.
fn terminator(dir: &Path) -> Value {
    json!({
        "name": "tls",
        "address": {"pipe": {"path": dir.join("tls")}},
        "filter_chains": [{
            "transport_socket": {
                "name": "envoy.transport_sockets.tls",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
                    "common_tls_context": {"tls_certificates": [{
                        "certificate_chain": {"filename": dir.join("certificate.pem")},
                        "private_key": {"filename": dir.join("key.pem")},
                    }]},
                },
            },
            "filters": [{
                "name": "envoy.filters.network.tcp_proxy",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
                    "stat_prefix": "tls",
                    "cluster": "bridge",
                },
            }],
        }],
    })
}

/// The store's cluster: its certificate is checked, and its calls get the credential.
fn cluster(dir: &Path) -> Value {
    json!({
        "name": "store",
        "type": "STATIC",
        "connect_timeout": "0.5s",
        "load_assignment": {"cluster_name": "store", "endpoints": [{"lb_endpoints": [
            {"endpoint": {"address": {"pipe": {"path": dir.join("tls")}}}},
        ]}]},
        "transport_socket": {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                "sni": HOST,
                "common_tls_context": {"validation_context": {
                    "trusted_ca": {"filename": dir.join("certificate.pem")},
                    "match_typed_subject_alt_names": [
                        {"san_type": "DNS", "matcher": {"exact": HOST}},
                    ],
                }},
            },
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http_protocol_options": {}},
                "http_filters": [
                    {
                        "name": "envoy.filters.http.credential_injector",
                        "typed_config": {
                            "@type": "type.googleapis.com/envoy.extensions.filters.http.credential_injector.v3.CredentialInjector",
                            "overwrite": true,
                            "credential": {
                                "name": "envoy.http.injected_credentials.generic",
                                "typed_config": {
                                    "@type": "type.googleapis.com/envoy.extensions.http.injected_credentials.generic.v3.Generic",
                                    "credential": {
                                        "name": "store-token",
                                        "sds_config": {
                                            "path_config_source": {"path": dir.join("token.json")},
                                        },
                                    },
                                },
                            },
                        },
                    },
                    {
                        "name": "envoy.filters.http.upstream_codec",
                        "typed_config": {
                            "@type": "type.googleapis.com/envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec",
                        },
                    },
                ],
            },
        },
    })
}

async fn start(upstream: &Upstream, bridge: SocketAddr, dir: &Path) -> Envoy {
    let mut filter = filter::minimal();
    // No token, no variable: what is not here can't be read out of it.
    filter["store"] =
        json!({"redis": {"cluster": "store", "transport": "rest", "authority": HOST}});
    Envoy::with_filter(upstream, filter)
        .options(|o| {
            assert!(o.host_env_keys.is_empty());
            o.listeners.push(terminator(dir));
            o.clusters.push(cluster(dir));
            o.clusters.push(config::cluster("bridge", &[bridge]));
        })
        .start()
        .await
}

fn charge() -> Request {
    Request::post("/v1/charges").key(key()).json("{}")
}

#[tokio::test]
async fn envoy_adds_credential_and_tls_and_follows_the_secret_when_it_changes() {
    let dir = TempDir::with_prefix("idempo-credentials-").unwrap();
    certificate(dir.path());
    secret(dir.path(), "yesterdays");
    let redis = Server::start(&[]);
    let bridge = bridge::start(&redis.socket());
    let upstream = Upstream::start().await;
    let envoy = start(&upstream, bridge, dir.path()).await;

    // A secret that the store does not know: refused, and nothing runs.
    refused(
        &envoy.pool().send(&charge()).await.unwrap(),
        503,
        "store_unavailable",
    );
    assert_eq!(upstream.effects(), 0);

    secret(dir.path(), bridge::TOKEN);
    until("the store to be ready", || async {
        (envoy.stats().await.idempo("idempo_store_ready", &[]) == 1).then_some(())
    })
    .await;
    let request = charge();
    let first = envoy.pool().send(&request).await.unwrap();
    assert_eq!(first.status, 201, "{first:?}");
    replayed(&first, &envoy.pool().send(&request).await.unwrap());
    assert_eq!(upstream.effects(), 1);
    let stats = envoy.stats().await;
    assert!(stats.get("cluster.store.ssl.handshake") > 0);
    assert_eq!(stats.get("cluster.store.ssl.fail_verify_san"), 0);
    for secret in [bridge::TOKEN, "yesterdays"] {
        assert!(!envoy.log().contains(secret));
    }
}
