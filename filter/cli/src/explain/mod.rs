//! `idempo explain`: one request against one configuration.
//!
//! | file | its part |
//! |---|---|
//! | `request` | from arguments to header lines, body and host properties |
//! | `drive` | the real [`idempo_core::exchange::Exchange`] against a store that keeps its contract |
//! | `states` | the states an operation can be in, each made by the contract's own steps |
//! | `rules` | which rule, and why not the others |
//! | `reading` | key, tenant and principal, each place by itself |
//! | `findings` | everything that is told, as data |
//! | `text` | the same for people |
//!
//! Keys, tenants and principals are shown by digest only, unless `--show-values` is given.

mod drive;
mod findings;
mod reading;
mod request;
mod rules;
mod states;
mod text;

use crate::{Format, Report};
use idempo_core::exchange::Moment;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The filter's configuration, or an Envoy file that holds one.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The method; GET, or POST where there is a body.
    #[arg(short = 'X', long)]
    method: Option<String>,
    /// The request's URL, `http://host/path?query`. The path is taken as written.
    #[arg(long)]
    url: String,
    /// A header, `Name: value`; may be repeated.
    #[arg(short = 'H', long = "header", value_name = "LINE")]
    headers: Vec<String>,
    /// The body from a file, `-` for the standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    data_file: Option<PathBuf>,
    /// The body.
    #[arg(long, value_name = "TEXT")]
    data: Option<String>,
    /// The name of the Envoy route.
    #[arg(long, value_name = "NAME")]
    envoy_route: Option<String>,
    /// A host property, such as
    /// `metadata.filter_metadata.envoy.filters.http.jwt_authn.claims.tenant=acme`.
    #[arg(long = "property", value_name = "PATH=VALUE")]
    properties: Vec<String>,
    /// A member of the Envoy route's `idempo` metadata, such as `route=charges`.
    #[arg(long = "metadata", value_name = "KEY=VALUE")]
    metadata: Vec<String>,
    /// The time to explain for, Unix seconds; now where it is not given.
    #[arg(long, value_name = "SECONDS")]
    now: Option<u64>,
    /// Show key, tenant and principal as they are.
    #[arg(long)]
    show_values: bool,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Explains.
///
/// # Errors
/// One line where an argument or a file cannot be used.
pub(crate) fn run(arguments: &Arguments) -> Result<Report, String> {
    let plan = crate::load::plan(&arguments.config)?;
    let request = request::read(arguments)?;
    let seconds = arguments.now.unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |d| d.as_secs())
    });
    let now = Moment {
        wall_us: seconds.saturating_mul(1_000_000),
        store_ms: seconds.saturating_mul(1_000),
    };
    let findings = findings::find(plan, &request, now, arguments.show_values);
    let text = match arguments.format {
        Format::Text => text::write(&findings),
        Format::Json => {
            crate::pretty(&serde_json::to_value(&findings).map_err(|e| format!("the report: {e}"))?)
        }
    };
    Ok(Report { text, status: 0 })
}
