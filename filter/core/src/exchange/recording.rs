//! What is kept of an answer while it passes.

use super::response::Origin;
use super::{Moment, Recording, Run};
use crate::envelope::{self, Envelope, MAX_SEGMENTS};
use crate::http::Headers;
use crate::plan::{Commit, Mode, Route};
use crate::record::{Outcome, Replayable};

/// An answer up to this size is held from its headers until it is recorded, octets (design §8).
const HOLD_MAX: u64 = 64 << 10;

#[expect(
    clippy::too_many_arguments,
    reason = "one call, and a struct for it would say less"
)]
pub(super) fn start(
    rule: &Route,
    run: &Run,
    headers: &Headers,
    status: u16,
    accepted: bool,
    replay: Replayable,
    end: bool,
    origin: &Origin<'_>,
) -> Recording {
    let declared = headers
        .first_str("content-length")
        .and_then(|v| v.parse::<u64>().ok());
    // A HEAD answer or a 304 declares a length that never comes.
    let declared = declared.filter(|_| !end);
    let enforce = run.attempt.mode == Mode::Enforce;
    let hold = enforce
        && !end
        && origin.can_hold
        && rule.commit == Commit::BeforeEnd
        && declared.is_some_and(|length| length > 0 && length <= HOLD_MAX);
    let mut recording = Recording {
        status,
        kept: envelope::recordable(&rule.record, headers),
        body: Vec::new(),
        segments: Vec::new(),
        seen: 0,
        declared,
        replay: if enforce {
            replay
        } else {
            Replayable::Observed
        },
        accepted,
        hold,
        digest: None,
    };
    if declared.is_some_and(|length| length > rule.replay.max_inline_body) {
        recording.drop_body(Replayable::TooLarge);
    }
    recording
}

impl Recording {
    pub(super) fn take(&mut self, chunk: &[u8], rule: Option<&Route>) {
        self.seen = self.seen.saturating_add(chunk.len() as u64);
        if self.replay == Replayable::Yes
            && rule.is_none_or(|r| self.seen > r.replay.max_inline_body)
        {
            self.drop_body(Replayable::TooLarge);
        }
        if self.replay == Replayable::Yes {
            self.body.extend_from_slice(chunk);
            self.note_segment(chunk.len());
        } else {
            self.unkept().update(chunk);
        }
    }

    fn note_segment(&mut self, octets: usize) {
        if self.declared.is_some() || octets == 0 {
            return;
        }
        let octets = u32::try_from(octets).unwrap_or(u32::MAX);
        let room = self.segments.len() < MAX_SEGMENTS;
        match self.segments.last_mut() {
            Some(last) if !room => *last = last.saturating_add(octets),
            _ => self.segments.push(octets),
        }
    }

    fn unkept(&mut self) -> &mut blake3::Hasher {
        self.digest.get_or_insert_with(|| {
            Box::new(blake3::Hasher::new_derive_key(
                "idempo 2026 unkept answer v1",
            ))
        })
    }

    /// The body is not kept any further: its digest still is.
    pub(super) fn drop_body(&mut self, why: Replayable) {
        if self.replay == Replayable::Yes {
            self.replay = why;
            let body = std::mem::take(&mut self.body);
            self.unkept().update(&body);
        }
    }

    /// The outcome, and the encoded answer where it is kept.
    pub(super) fn outcome(mut self, now: Moment) -> (Outcome, Option<Vec<u8>>) {
        let kept = self.replay == Replayable::Yes;
        let envelope = Envelope {
            status: self.status,
            headers: std::mem::take(&mut self.kept),
            body: std::mem::take(&mut self.body),
            segments: std::mem::take(&mut self.segments),
        };
        let result = if kept {
            envelope::result_digest(&envelope)
        } else {
            let head = envelope::result_digest(&envelope);
            *self.unkept().update(&head).finalize().as_bytes()
        };
        let outcome = Outcome {
            status: self.status,
            result,
            body_length: self.seen,
            wall_first_response: now.wall_ms(),
            replay: self.replay,
        };
        (outcome, kept.then(|| envelope::encode(&envelope)))
    }

    /// The answer broke off.
    pub(super) fn cut(&mut self) {
        self.drop_body(Replayable::Cut);
        if self.replay == Replayable::Observed {
            self.replay = Replayable::Cut;
        }
    }
}
