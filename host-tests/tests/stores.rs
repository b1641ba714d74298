//! Store engines under the one contract, Redis on real servers.

use host_tests::store::local::{Model, Shared};
use host_tests::store::redis::{Remote, Server, Way};
use host_tests::store::{Engine, desk::Desk, scenarios};

/// Runs the whole list, and says which scenario it was that failed.
fn passes(engine: &mut dyn Engine) {
    for (name, steps) in scenarios::ALL {
        eprintln!("- {name}");
        steps(&mut Desk::new(engine, name));
    }
}

#[test]
fn the_model_passes() {
    passes(&mut Model::default());
}

#[test]
fn the_table_passes() {
    passes(&mut Shared::default());
}

#[test]
fn redis_behind_webdis_passes() {
    let server = Server::start(&[]);
    let mut remote = Remote::new(&server, Way::Webdis);
    passes(&mut remote);
    assert_eq!(remote.unprepared(), 1, "the script was sent once");
}

#[test]
fn redis_over_rest_passes() {
    let server = Server::start(&[]);
    passes(&mut Remote::new(&server, Way::Rest));
}

#[test]
fn redis_over_resp_passes() {
    let server = Server::start(&[]);
    passes(&mut Remote::new(&server, Way::Resp));
}
