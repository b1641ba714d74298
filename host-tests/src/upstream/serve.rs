//! One connection of the upstream: read, act, remember, answer or misbehave.

use super::{
    Fault, Instruction,
    answer::{self, After, head},
    body::Collected,
    control,
    instruction::Early,
    memory::{Memory, Received},
    uploads::Progress,
    wire::{Body, Connection, Incoming},
};
use std::{io, sync::Arc};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

/// Serves requests until the peer leaves or a fault ends the connection.
pub(super) async fn connection(stream: TcpStream, memory: Arc<Memory>) {
    // Answers are written whole: delaying them for more can only hurt.
    let _ = stream.set_nodelay(true);
    let mut connection = Connection::new(stream);
    // A peer that leaves in the middle of a request is what some tests are about.
    while let Ok(Some(request)) = connection.next().await {
        let keep_alive = request.keep_alive;
        match serve(&mut connection, request, &memory).await {
            Ok(After::Next) if keep_alive => {}
            Ok(After::Next | After::Close) | Err(_) => break,
            Ok(After::Hang) => std::future::pending().await,
            Ok(After::Reset) => {
                let _ = connection.stream.set_zero_linger();
                break;
            }
        }
    }
}

/// Answers that are none of the instructed ones.
async fn plain(
    connection: &mut Connection,
    body: &mut Body,
    (status, content_type, text): (u16, &str, &str),
) -> io::Result<After> {
    while connection.piece(body).await?.is_some() {}
    let mut out = Vec::new();
    head(&mut out, status, &[], Some(content_type), Some(text.len()));
    out.extend_from_slice(text.as_bytes());
    connection.stream.write_all(&out).await?;
    Ok(After::Next)
}

async fn serve(
    connection: &mut Connection,
    mut request: Incoming,
    memory: &Memory,
) -> io::Result<After> {
    if let Some(rest) = request.target.strip_prefix("/_demo/") {
        let (status, text) = control::answer(&request.method, rest, memory);
        let answer = (status, "application/json", text.as_str());
        return plain(connection, &mut request.body, answer).await;
    }
    let own = Instruction::read(
        request
            .headers
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_slice())),
    );
    let instruction = match own {
        Ok(own) => own
            .or_else(|| memory.default_instruction())
            .unwrap_or_default(),
        Err(problem) => {
            // 599 so that a typing error cannot be taken for anything a test expects.
            let answer = (599, "text/plain", problem.as_str());
            return plain(connection, &mut request.body, answer).await;
        }
    };
    let mut upload = Reading {
        number: memory.uploads.begin(&request.method, &request.target),
        collected: memory.keeps().then(Collected::default),
        seen: 0,
        memory,
    };
    let Some(early) = instruction.early else {
        let whole = upload
            .read(connection, &mut request.body, &instruction, u64::MAX)
            .await;
        if let Err(e) = whole {
            // It has brought nothing that could be acted on.
            upload.stands(Progress::Broken);
            return Err(e);
        }
        if let Some(gate) = &instruction.act_gate {
            upload.stands(Progress::Whole);
            memory.wait_at(gate).await;
        }
        let effect = acts(&request, &instruction).then(|| memory.act());
        let facts = answer::Facts::of(&request, effect);
        upload.remember(request, effect, Progress::Whole);
        return answer::give(&mut connection.stream, &instruction, &facts, memory).await;
    };

    let first = upload
        .read(
            connection,
            &mut request.body,
            &instruction,
            instruction.early_after,
        )
        .await;
    if let Err(e) = first {
        upload.stands(Progress::Broken);
        return Err(e);
    }
    let effect = acts(&request, &instruction).then(|| memory.act());
    let facts = answer::Facts::of(&request, effect);
    if early != Early::Read {
        upload.remember(request, effect, Progress::Left);
        let after = answer::give(&mut connection.stream, &instruction, &facts, memory).await?;
        return Ok(match (after, early) {
            (After::Next, Early::Ignore) => After::Hang,
            (After::Next, _) => After::Close,
            (after, _) => after,
        });
    }
    let after = answer::give(&mut connection.stream, &instruction, &facts, memory).await?;
    let rest = upload
        .read(connection, &mut request.body, &instruction, u64::MAX)
        .await;
    let progress = if rest.is_ok() {
        Progress::Whole
    } else {
        Progress::Broken
    };
    upload.remember(request, effect, progress);
    rest.map(|()| after)
}

fn acts(request: &Incoming, instruction: &Instruction) -> bool {
    answer::writes(&request.method)
        && !instruction.no_effect
        && instruction.fault != Some(Fault::Close)
}

/// A body that is being read.
struct Reading<'a> {
    number: u64,
    /// `None` where nothing is kept.
    collected: Option<Collected>,
    seen: u64,
    memory: &'a Memory,
}

impl Reading<'_> {
    /// Reads to the end, or until `most` octets or more have come.
    async fn read(
        &mut self,
        connection: &mut Connection,
        body: &mut Body,
        instruction: &Instruction,
        most: u64,
    ) -> io::Result<()> {
        while self.seen < most {
            if let Some(gate) = &instruction.read_gate
                && self.seen >= instruction.read_gate_after
            {
                self.memory.wait_at(gate).await;
            }
            let Some(piece) = connection.piece(body).await? else {
                break;
            };
            self.seen += piece.len() as u64;
            if let Some(collected) = &mut self.collected {
                collected.take(&piece);
            }
            self.memory
                .uploads
                .report(self.number, piece.len(), Progress::Coming);
        }
        Ok(())
    }

    fn stands(&self, progress: Progress) {
        self.memory.uploads.report(self.number, 0, progress);
    }

    fn remember(&mut self, request: Incoming, effect: Option<u64>, progress: Progress) {
        self.stands(progress);
        let Some(collected) = self.collected.take() else {
            return;
        };
        let (body, length, digest) = collected.finish();
        self.memory.record(Received {
            method: request.method,
            target: request.target,
            headers: request.headers,
            body,
            length,
            digest,
            whole: progress == Progress::Whole,
            effect,
        });
    }
}
