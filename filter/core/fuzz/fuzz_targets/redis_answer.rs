//! Answers that claim to be a store's: without the call's nonce they say nothing, and nothing makes them
//! panic.
#![no_main]

use idempo_core::ids::OperationId;
use idempo_core::store::redis::{Layout, Redis, Transport};
use idempo_core::store::remote::{Batch, HttpAnswer, Limits, Nonce, Understood};
use idempo_core::store::{Action, Op};
use libfuzzer_sys::fuzz_target;

const NONCE: Nonce = Nonce([7; 16]);

fuzz_target!(|data: &[u8]| {
    let Some((choice, body)) = data.split_first() else {
        return;
    };
    let transport = match choice % 3 {
        0 => Transport::Webdis {
            authorization: None,
        },
        1 => Transport::Rest { token: None },
        _ => Transport::Resp { login: None },
    };
    let redis = Redis::new(transport, Layout::default());
    let mut batch = Batch::new(NONCE, Limits::default());
    for n in 0..=(choice / 3) % 3 {
        let action = if n == 1 {
            Action::Body { incarnation: 1 }
        } else {
            Action::Read
        };
        batch.push(Op {
            operation: OperationId([n; 32]),
            action,
        });
    }
    let answer = HttpAnswer { status: 200, body };
    let hex = NONCE.hex();
    let named = body.windows(hex.len()).any(|w| w == hex.as_bytes());
    match redis.understand(&batch, answer) {
        Understood::Answered(answered) => {
            assert!(named, "somebody else's answer was believed");
            assert_eq!(answered.replies.len(), batch.ops().len());
        }
        Understood::Unprepared | Understood::Ambiguous(_) => {}
    }
    let _ = redis.understand_sweep(&NONCE, 3, answer);
});
