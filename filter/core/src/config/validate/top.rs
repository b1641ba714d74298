//! Everything outside of routes and defaults.

use super::store::{self, variable};
use super::{Wrong, names, take};
use crate::config::error::{Report, index, join, quote};
use crate::config::model::{Config, Limits, Signing, Source, Tenant};
use crate::order::repeated;

pub(super) fn check(config: &Config, report: &mut Report) {
    if let Some(namespace) = &config.namespace {
        take(report, "namespace".into(), names::visible(namespace, 128));
    }
    if let Some(fraction) = config.enforce_fraction
        && !(0.0..=1.0).contains(&fraction)
    {
        report.push(
            "enforce_fraction",
            // As JavaScript writes it: `{}` would bring the standard library's own writer of doubles
            // into the module for this one sentence.
            format!("{} is not a share", ryu_js::Buffer::new().format(fraction)),
            "write a number from 0 (observe all) to 1 (enforce all)",
        );
    }
    store::check(config, report);
    if let Some(l) = &config.limits {
        limits(l, report);
    }
    if let Some(s) = &config.signing {
        signing(s, report);
    }
    if let Some(cluster) = &config.loopback_cluster {
        take(
            report,
            "loopback_cluster".into(),
            names::visible(cluster, 256),
        );
        if !report.has_error_within("loopback_cluster")
            && config.signing.is_none()
            && !report.has_unread_within("signing")
        {
            report.push(
                "loopback_cluster",
                "needs signing: without a signature a request that comes back through the loopback cannot be told from a forged one",
                "write signing: {active: {env: IDEMPO_SIGNING_SECRET}}, make the secret with openssl rand -hex 32, and name the variable in vm_config.environment_variables.host_env_keys",
            );
        }
    }
    if let Some(t) = &config.tenant {
        tenant(t, report);
    }
    if let Some(principal) = &config.principal {
        source("principal", principal, report);
    }
}

fn limits(limits: &Limits, report: &mut Report) {
    if limits.tenant_records == Some(0) {
        report.push(
            "limits.tenant_records",
            "0 would refuse every write",
            "write 1 or more, or leave it out for no quota",
        );
    }
    if limits.tenant_claims_per_second == Some(0) {
        report.push(
            "limits.tenant_claims_per_second",
            "0 would refuse every write",
            "write 1 or more, or leave it out for no limit",
        );
    }
    if limits.worker_waiters == Some(0) {
        report.push(
            "limits.worker_waiters",
            "0 would let nobody wait",
            "write 1 or more; in_flight: {action: reject} switches waiting off",
        );
    }
}

fn signing(signing: &Signing, report: &mut Report) {
    match &signing.active {
        None => report.missing("signing", "active", "write active: {env: NAME}"),
        Some(active) => variable("signing.active", active, report),
    }
    if let Some(previous) = &signing.previous {
        variable("signing.previous", previous, report);
        let active = signing.active.as_ref().and_then(|a| a.env.as_ref());
        if previous.env.is_some() && previous.env.as_ref() == active {
            report.push(
                "signing.previous.env",
                "is the variable that active names already",
                "name the variable that holds the secret of before, or leave previous out",
            );
        }
    }
}

fn tenant(tenant: &Tenant, report: &mut Report) {
    let sources = tenant.sources.as_deref().unwrap_or_default();
    for (at, s) in sources.iter().enumerate() {
        source(&index("tenant.sources", at), s, report);
    }
    let parts = |s: &Source| {
        let header = s.header.as_ref().map(|h| h.to_ascii_lowercase());
        let metadata = s.metadata.clone().map(|m| (m.filter, m.path));
        (header, metadata, s.property.clone())
    };
    let all: Vec<_> = sources.iter().map(parts).collect();
    if let Some(at) = repeated(&all) {
        report.push(
            index("tenant.sources", at),
            "is there already",
            "name each source once",
        );
    }
    if let Some(default) = &tenant.default {
        take(
            report,
            "tenant.default".into(),
            names::visible(default, 255),
        );
    }
    if tenant.required == Some(true) && sources.is_empty() {
        report.push(
            "tenant.required",
            "a tenant is required and there is no source that could give one",
            "write sources: [{header: x-tenant-id}], or leave required out",
        );
    } else if tenant.required == Some(true) && tenant.default.is_some() {
        report.push(
            "tenant.default",
            "a default and required: true contradict each other",
            "leave one of them out",
        );
    }
}

/// Exactly one form, and that one complete.
pub(super) fn source(path: &str, source: &Source, report: &mut Report) {
    const FORMS: &str = "write one of {header: name}, {metadata: {filter: name, path: [names]}} and {property: [names]}";
    let written = [
        source.header.is_some(),
        source.metadata.is_some(),
        source.property.is_some(),
    ];
    match written.into_iter().filter(|w| *w).count() {
        0 if !report.has_unread_within(path) => report.push(path, "names no source", FORMS),
        0 | 1 => {}
        _ => report.push(path, "names several sources", FORMS),
    }
    if let Some(header) = &source.header {
        take(report, join(path, "header"), names::header(header));
    }
    if let Some(metadata) = &source.metadata {
        let path = join(path, "metadata");
        match &metadata.filter {
            None => report.missing(
                &path,
                "filter",
                "name the metadata namespace, such as envoy.filters.http.jwt_authn",
            ),
            Some(filter) => take(report, join(&path, "filter"), names::visible(filter, 256)),
        }
        match &metadata.path {
            None => report.missing(&path, "path", "write path: [names from the outside in]"),
            Some(names) => take(report, join(&path, "path"), steps(names)),
        }
    }
    if let Some(property) = &source.property {
        take(report, join(path, "property"), steps(property));
    }
}

/// The names on the way to a value. The host joins them with NUL octets.
fn steps(names: &[String]) -> Result<(), Wrong> {
    if names.is_empty() || names.len() > 16 {
        return Err((
            format!("has {} names", names.len()),
            "write 1 to 16 names from the outside in".into(),
        ));
    }
    match names
        .iter()
        .find(|n| n.is_empty() || n.len() > 256 || n.contains('\0'))
    {
        None => Ok(()),
        Some(name) => Err((
            format!("{} is not a name", quote(name)),
            "write 1 to 256 characters without NUL".into(),
        )),
    }
}
