//! The counting upstream as a program of its own, for the sandbox, scripts and benchmarks.

use clap::Parser;
use host_tests::upstream::Upstream;
use std::net::{Ipv4Addr, SocketAddr};

/// A demo upstream that counts its effects. `x-demo-*` request headers say how it answers;
/// `/_demo/effects`, `/_demo/requests` and `/_demo/reset` show and clear what it remembers.
#[derive(Parser)]
struct Args {
    /// Loopback port to listen on.
    #[arg(long, default_value_t = 10080)]
    port: u16,
    /// How many requests to remember; 0 keeps totals only, for benchmarks.
    #[arg(long, default_value_t = 1000)]
    keep: usize,
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let args = Args::parse();
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let upstream = Upstream::bind(addr, args.keep).await?;
    println!("demo upstream on http://{}", upstream.addr());
    tokio::signal::ctrl_c().await
}
