//! Envoy's admin endpoint.

use crate::client::{Answer, Pool, Request};
use serde_json::Value;
use std::{collections::BTreeMap, net::SocketAddr};

/// Asks one Envoy about itself.
#[derive(Clone, Debug)]
pub struct Admin {
    addr: SocketAddr,
    pool: Pool,
}

impl Admin {
    /// For the endpoint at `addr`.
    #[must_use]
    pub fn new(addr: SocketAddr) -> Self {
        Self {
            addr,
            pool: Pool::new(addr),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// One GET.
    ///
    /// # Errors
    /// Where Envoy does not answer.
    pub async fn get(&self, path: &str) -> Result<Answer, String> {
        self.pool.send(&Request::new("GET", path)).await
    }

    /// One POST without a body.
    ///
    /// # Errors
    /// Where Envoy does not answer.
    pub async fn post(&self, path: &str) -> Result<Answer, String> {
        self.pool.send(&Request::new("POST", path)).await
    }

    async fn text(&self, path: &str) -> String {
        let answer = self.get(path).await.expect("the admin endpoint answers");
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.text()
    }

    /// Every counter and gauge (text values and histograms left out).
    ///
    /// # Panics
    /// Where the endpoint does not answer.
    pub async fn stats(&self) -> Stats {
        Stats(
            self.text("/stats")
                .await
                .lines()
                .filter_map(|line| {
                    let (name, value) = line.rsplit_once(": ")?;
                    Some((name.to_owned(), value.parse().ok()?))
                })
                .collect(),
        )
    }

    /// The Prometheus text.
    ///
    /// # Panics
    /// Where the endpoint does not answer.
    pub async fn prometheus(&self) -> String {
        self.text("/stats/prometheus").await
    }

    /// The same figures as JSON, histograms included.
    ///
    /// # Panics
    /// Where the endpoint does not answer JSON.
    pub async fn stats_json(&self) -> Value {
        serde_json::from_str(&self.text("/stats?format=json").await).expect("JSON statistics")
    }

    /// The address that the named listener is bound to.
    pub(super) async fn listener(&self, name: &str) -> Option<SocketAddr> {
        let answer = self.get("/listeners?format=json").await.ok()?;
        let all: Value = serde_json::from_slice(&answer.body).ok()?;
        let found = all["listener_statuses"]
            .as_array()?
            .iter()
            .find(|l| l["name"] == name)?;
        let socket = &found["local_address"]["socket_address"];
        let port = u16::try_from(socket["port_value"].as_u64()?).ok()?;
        Some(SocketAddr::new(
            socket["address"].as_str()?.parse().ok()?,
            port,
        ))
    }
}

/// Counters and gauges by name.
#[derive(Clone, Debug, Default)]
pub struct Stats(pub BTreeMap<String, u64>);

impl Stats {
    /// The value of that name; 0 where Envoy does not know it (yet).
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// The sum over one of idempo's metrics, whatever its other dimensions: `idempo_claim_total`
    /// with `[("result", "claimed")]`, say.
    #[must_use]
    pub fn idempo(&self, metric: &str, dimensions: &[(&str, &str)]) -> u64 {
        self.0
            .iter()
            .filter(|(name, _)| {
                let Some(rest) = name.strip_prefix("wasmcustom.") else {
                    return false;
                };
                let mut parts = rest.split('.');
                if parts.next() != Some(metric) {
                    return false;
                }
                let parts: Vec<&str> = parts.collect();
                dimensions.iter().all(|(d, v)| {
                    parts
                        .chunks_exact(2)
                        .any(|pair| pair == [*d, *v].as_slice())
                })
            })
            .map(|(_, value)| value)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idempo_sums_over_the_dimensions_that_are_not_named() {
        let stats = Stats(
            [
                (
                    "wasmcustom.idempo_claim_total.route.a.tenant.b01.result.claimed",
                    2,
                ),
                (
                    "wasmcustom.idempo_claim_total.route.b.tenant.b02.result.claimed",
                    3,
                ),
                (
                    "wasmcustom.idempo_claim_total.route.b.tenant.b02.result.current",
                    7,
                ),
                ("wasmcustom.idempo_claim_totals.route.b.result.claimed", 100),
            ]
            .map(|(n, v)| (n.to_owned(), v))
            .into(),
        );
        assert_eq!(stats.idempo("idempo_claim_total", &[]), 12);
        assert_eq!(
            stats.idempo("idempo_claim_total", &[("result", "claimed")]),
            5
        );
        assert_eq!(
            stats.idempo(
                "idempo_claim_total",
                &[("route", "b"), ("result", "claimed")]
            ),
            3
        );
    }
}
