//! Bodies on their way in: what a test asks to see that an upload streams through the proxy.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

/// Where an upload stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More may come.
    Coming,
    /// All of it has come.
    Whole,
    /// The connection ended before its end.
    Broken,
    /// The upstream stopped reading it.
    Left,
}

/// A request whose head has come.
#[derive(Clone, Debug)]
pub struct Upload {
    /// The method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Octets of its body that have been read.
    pub octets: u64,
    /// Where it stands.
    pub progress: Progress,
}

#[derive(Debug, Default)]
struct List {
    /// The number of the first that is kept.
    first: u64,
    kept: VecDeque<Upload>,
}

/// All uploads of one upstream, in the order of their heads.
#[derive(Debug)]
pub(super) struct Uploads {
    keep: usize,
    changes: watch::Sender<()>,
    list: Mutex<List>,
}

impl Uploads {
    pub(super) fn new(keep: usize) -> Self {
        Self {
            keep,
            changes: watch::Sender::new(()),
            list: Mutex::new(List::default()),
        }
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A head has come; gives the number to report progress under.
    pub(super) fn begin(&self, method: &str, target: &str) -> u64 {
        if self.keep == 0 {
            return 0;
        }
        let mut list = self.list();
        list.kept.push_back(Upload {
            method: method.to_owned(),
            target: target.to_owned(),
            octets: 0,
            progress: Progress::Coming,
        });
        if list.kept.len() > self.keep {
            list.kept.pop_front();
            list.first += 1;
        }
        let number = list.first + list.kept.len() as u64 - 1;
        drop(list);
        self.changes.send_replace(());
        number
    }

    /// So many more octets have come, and that is where it stands now.
    pub(super) fn report(&self, number: u64, more: usize, progress: Progress) {
        if self.keep == 0 {
            return;
        }
        let mut list = self.list();
        let index = number
            .checked_sub(list.first)
            .and_then(|i| usize::try_from(i).ok());
        // Forgotten since: nobody asks.
        if let Some(upload) = index.and_then(|i| list.kept.get_mut(i)) {
            upload.octets += more as u64;
            upload.progress = progress;
        }
        drop(list);
        self.changes.send_replace(());
    }

    pub(super) fn all(&self) -> Vec<Upload> {
        self.list().kept.iter().cloned().collect()
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    pub(super) fn reset(&self) {
        let mut list = self.list();
        list.first += list.kept.len() as u64;
        list.kept.clear();
    }
}
