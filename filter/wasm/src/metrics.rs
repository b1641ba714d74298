//! Metric ids by what is counted: a name is built and defined once per configuration and worker.

use crate::abi;
use idempo_core::metrics::{Counter, Gauge, Histogram};
use idempo_core::plan::Plan;
use std::cell::RefCell;
use std::collections::HashMap;

const COUNTER: u32 = 0;
const GAUGE: u32 = 1;
const HISTOGRAM: u32 = 2;

/// The ids of one configuration.
#[derive(Default)]
pub(crate) struct Metrics {
    ids: RefCell<HashMap<Metric, u32>>,
}

#[derive(PartialEq, Eq, Hash)]
enum Metric {
    Counter(Counter),
    Histogram(Histogram),
    Gauge(Gauge),
}

impl Metrics {
    pub(crate) fn count(&self, plan: &Plan, counter: Counter) {
        if let Some(id) = self.id(Metric::Counter(counter), COUNTER, &|| counter.name(plan)) {
            let _ = abi::increment_metric(id, 1);
        }
    }

    pub(crate) fn time(&self, histogram: Histogram, value_us: u64) {
        if let Some(id) = self.id(Metric::Histogram(histogram), HISTOGRAM, &|| {
            histogram.name().into()
        }) {
            let _ = abi::record_metric(id, value_us);
        }
    }

    pub(crate) fn gauge(&self, gauge: Gauge, value: u64) {
        if let Some(id) = self.id(Metric::Gauge(gauge), GAUGE, &|| gauge.name().into()) {
            let _ = abi::record_metric(id, value);
        }
    }

    /// Changes a gauge that all workers share by this much.
    pub(crate) fn shift(&self, gauge: Gauge, by: i64) {
        if let Some(id) = self.id(Metric::Gauge(gauge), GAUGE, &|| gauge.name().into()) {
            let _ = abi::increment_metric(id, by);
        }
    }

    /// `idempo_build_info`: always 1, the facts are in the name.
    pub(crate) fn build_info(&self) {
        let version = env!("CARGO_PKG_VERSION").replace('.', "_");
        let git = option_env!("IDEMPO_GIT").unwrap_or("unknown");
        let record = idempo_core::record::FORMAT;
        let name = format!("idempo_build_info.version.{version}.git.{git}.record.{record}");
        if let Ok(id) = abi::define_metric(GAUGE, &name) {
            let _ = abi::record_metric(id, 1);
        }
    }

    fn id(&self, metric: Metric, kind: u32, name: &dyn Fn() -> String) -> Option<u32> {
        let mut ids = self.ids.borrow_mut();
        if let Some(id) = ids.get(&metric) {
            return Some(*id);
        }
        let id = abi::define_metric(kind, &name()).ok()?;
        ids.insert(metric, id);
        Some(id)
    }
}
