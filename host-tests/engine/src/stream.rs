//! One HTTP stream, as Envoy's filter chain moves its two directions past one filter.
//!
//! What a callback answers decides (Envoy's `FilterHeadersStatus`, `FilterDataStatus`): headers go on or
//! stop; of a body, `Continue` lets go of everything that was held, `StopAndBuffer` holds and shows all of
//! it next time, `StopAndWatermark` holds and shows only what is new, `StopNoBuffer` drops. A header map
//! can be read and changed in its callback, and after it only while it is stopped.

use crate::pairs::Lines;
use std::collections::{BTreeMap, VecDeque};

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the client.
    Request,
    /// To the client.
    Response,
}

/// What a body callback answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    Continue,
    Buffer,
    Watermark,
    Drop,
}

impl Data {
    /// Whatever else a module says, Envoy goes on.
    pub(crate) const fn of(status: u32) -> Self {
        match status {
            1 => Self::Buffer,
            2 => Self::Watermark,
            3 => Self::Drop,
            _ => Self::Continue,
        }
    }
}

/// One direction of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Header lines; as changed by the module.
    pub headers: Lines,
    /// The module may look at them.
    pub map_is_live: bool,
    /// They came.
    pub begun: bool,
    /// Held at the filter.
    pub stopped: bool,
    /// The headers went on.
    pub headers_passed: bool,
    /// Body octets that are held.
    pub held: Vec<u8>,
    /// The next callback shows what is held, too.
    pub(crate) buffering: bool,
    /// What the module may read as the body.
    pub(crate) shown: Option<Vec<u8>>,
    /// The sender's end has come to the filter.
    pub ended: bool,
    /// Body octets that went on.
    pub out: Vec<u8>,
    /// The end went on.
    pub out_ended: bool,
}

impl Flow {
    /// The headers' callback was answered.
    pub(crate) fn after_headers(&mut self, stop: bool) {
        if stop {
            self.stopped = true;
            return;
        }
        self.map_is_live = false;
        self.headers_passed = true;
        self.out_ended = self.ended;
    }

    /// Shows the module a piece of the body.
    pub(crate) fn show(&mut self, chunk: &[u8], end: bool) -> usize {
        let mut shown = if self.buffering {
            std::mem::take(&mut self.held)
        } else {
            Vec::new()
        };
        shown.extend(chunk);
        self.ended |= end;
        let size = shown.len();
        self.shown = Some(shown);
        size
    }

    /// A body's callback was answered.
    pub(crate) fn after_data(&mut self, status: Data) {
        let shown = self.shown.take().unwrap_or_default();
        self.buffering = status == Data::Buffer;
        match status {
            Data::Continue => {
                self.held.extend(shown);
                self.go_on();
            }
            Data::Buffer | Data::Watermark => {
                self.held.extend(shown);
                self.stopped = true;
            }
            Data::Drop => self.stopped = true,
        }
    }

    /// Lets go of what is held.
    pub(crate) fn go_on(&mut self) {
        self.stopped = false;
        self.buffering = false;
        self.headers_passed = true;
        self.out.append(&mut self.held);
        self.out_ended = self.ended;
    }
}

/// Who opened a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opener {
    /// A client outside, by its number.
    Client(usize),
    /// A callout through the loopback: the root that made it, and its token.
    Call(u32, u32),
}

/// A stream at one worker's filter.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Who opened it.
    pub opener: Opener,
    /// From the client.
    pub request: Flow,
    /// To the client.
    pub response: Flow,
    /// What is still to be sent of the body.
    pub upload: VecDeque<(Vec<u8>, bool)>,
    /// Host properties and filter state, by path.
    pub properties: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The router has the whole request.
    pub forwarded: bool,
    /// The filter or the host answered in the upstream's place.
    pub replied: bool,
    /// How often the router tried.
    pub tries: u64,
}

impl Stream {
    pub(crate) fn new(opener: Opener) -> Self {
        Self {
            opener,
            request: Flow::default(),
            response: Flow::default(),
            upload: VecDeque::new(),
            properties: BTreeMap::new(),
            forwarded: false,
            replied: false,
            tries: 0,
        }
    }

    pub(crate) fn flow(&mut self, way: Way) -> &mut Flow {
        match way {
            Way::Request => &mut self.request,
            Way::Response => &mut self.response,
        }
    }

    pub(crate) fn tell(&mut self, path: &str, value: &[u8]) {
        let path = path.replace('.', "\0").into_bytes();
        self.properties.insert(path, value.to_vec());
    }
}
