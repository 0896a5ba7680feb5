//! From prompts to replies: jobs are handed in, their events become text, the listener hears of it. Must not
//! know how replies are written down.

use super::ask::Ask;
use super::client::Gone;
use super::error::{ApiError, GONE};
use super::outcome::{Finish, Listener, Told, Usage};
use super::records::Record;
use super::served::Served;
use crate::constrain::Grammar;
use crate::generate::Stop;
use crate::output::{Output, Piece, Wanted};
use crate::schedule::{Event, Picked, Refused, Ticket, Timings};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

/// The longest wait before somebody looks whether the client is still there.
const LOOK: Duration = Duration::from_millis(250);
/// The same where events of several jobs are waited for.
const LOOK_AMONG_MANY: Duration = Duration::from_millis(5);
/// How long a cancelled job may take to tell its numbers.
const LAST_NUMBERS: Duration = Duration::from_secs(2);

/// A request, ready to run.
pub struct Run<'s> {
    /// The model.
    pub served: &'s Served,
    /// What is wanted.
    pub ask: &'s Ask,
    /// Tokens of each prompt.
    pub prompts: Vec<Vec<u32>>,
    /// Whose prefixes may be found.
    pub salt: Vec<u8>,
    /// The seed of the first reply.
    pub seed: u64,
    grammar: Option<Arc<Grammar>>,
    lanes: Vec<Lane>,
}

/// One reply.
struct Lane {
    ticket: Option<Ticket>,
    output: Output<'static>,
    pieces: Vec<Piece>,
    told: Vec<Told>,
    usage: Usage,
    start: Instant,
    ended: bool,
    /// Why it ended, in OpenAI's word.
    finish: Option<&'static str>,
}

impl From<Gone> for ApiError {
    /// Nobody hears of it, but for the log.
    fn from(_: Gone) -> ApiError {
        ApiError::new(GONE, "the client has gone")
    }
}

fn refused(refused: Refused) -> ApiError {
    match refused {
        Refused::Full { retry_after } => {
            ApiError::new(429, "too many requests wait already").coded("queue_full").later(retry_after)
        }
        Refused::Stopping => stopping(),
        Refused::TooLong { tokens, ctx } => ApiError::new(
            400,
            format!(
                "the prompt has {tokens} tokens, the context holds {ctx}; use a shorter one or a larger --ctx"
            ),
        )
        .coded("context_length_exceeded"),
    }
}

fn stopping() -> ApiError {
    ApiError::new(503, "the server is stopping").coded("stopping")
}

impl<'s> Run<'s> {
    /// Encodes the prompts and hands the first of them in.
    ///
    /// # Errors
    /// What is wrong with them; the queue is full.
    pub fn new(served: &'s Served, ask: &'s Ask, salt: Vec<u8>) -> Result<Run<'s>, ApiError> {
        let prompts =
            ask.prompts.iter().map(|prompt| served.prompt(prompt)).collect::<Result<Vec<_>, _>>()?;
        if prompts.iter().any(Vec::is_empty) {
            return Err(ApiError::field("prompt", "has no tokens"));
        }
        let ctx = served.scheduler.ctx();
        if let Some(long) = prompts.iter().find(|prompt| prompt.len() > ctx) {
            return Err(refused(Refused::TooLong { tokens: long.len(), ctx }));
        }
        let grammar = served.grammar(ask)?;
        let seed = ask.seed.unwrap_or_else(crate::sampling::random_seed);
        let wanted = Wanted {
            stops: &ask.stops,
            tools: ask.tools,
            reasoning: ask.reasoning,
            starts_in_reasoning: false,
        };
        let lane = || Lane {
            ticket: None,
            output: Output::new(served.tokenizer, &wanted),
            pieces: Vec::new(),
            told: Vec::new(),
            usage: Usage::default(),
            start: Instant::now(),
            ended: false,
            finish: None,
        };
        let lanes = (0..prompts.len() * ask.n).map(|_| lane()).collect();
        let mut run = Run { served, ask, prompts, salt, seed, grammar, lanes };
        run.hand_in()?;
        Ok(run)
    }

    /// Number of replies.
    pub fn count(&self) -> usize {
        self.lanes.len()
    }

    /// The numbers of all replies together, as far as they came; times are those of the first one.
    pub fn sum_up(&self, record: &mut Record) {
        for (i, lane) in self.lanes.iter().enumerate() {
            if i == 0 {
                record.usage = lane.usage;
                record.finish = lane.finish.unwrap_or("error");
                continue;
            }
            record.usage.decoded += lane.usage.decoded;
            if i.is_multiple_of(self.ask.n) {
                record.usage.prompt += lane.usage.prompt;
                record.usage.cached += lane.usage.cached;
                record.usage.disk += lane.usage.disk;
            }
        }
    }

    /// Hands in what waits. Once the first job is accepted the others wait for their place here.
    fn hand_in(&mut self) -> Result<(), ApiError> {
        for i in 0..self.lanes.len() {
            if self.lanes[i].ticket.is_some() {
                continue;
            }
            let (prompt, n) = (&self.prompts[i / self.ask.n], i % self.ask.n);
            let job = self.served.job(self.ask, prompt, n, self.seed, &self.salt, self.grammar.as_ref());
            match self.served.scheduler.submit(job) {
                Ok(ticket) => {
                    self.lanes[i].usage.prompt = prompt.len();
                    self.lanes[i].ticket = Some(ticket);
                }
                Err(Refused::Full { .. }) if i > 0 => return Ok(()),
                Err(why) => return Err(refused(why)),
            }
        }
        Ok(())
    }

    /// Sees all replies to their ends. An error cancels what is left, as does dropping it.
    ///
    /// # Errors
    /// The client has gone, the engine failed, the server stops.
    pub fn listen(&mut self, listener: &mut dyn Listener) -> Result<(), ApiError> {
        let mut looked = Instant::now();
        loop {
            let open = self.lanes.iter().filter(|lane| !lane.ended).count();
            if open == 0 {
                return Ok(());
            }
            let mut patience = if open == 1 { LOOK } else { LOOK_AMONG_MANY };
            if !self.lanes.iter().any(|lane| !lane.ended && lane.ticket.is_some()) {
                // All that are left wait for a place, and nobody tells them of one.
                std::thread::sleep(patience);
            }
            for i in 0..self.lanes.len() {
                while !self.lanes[i].ended {
                    let Some(event) = self.lanes[i].ticket.as_ref().and_then(|t| t.next(patience)) else {
                        break;
                    };
                    self.hear(i, event, listener)?;
                    // Others may have news as well.
                    patience = Duration::ZERO;
                    if looked.elapsed() >= LOOK {
                        break;
                    }
                }
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                listener.idle()?;
                self.hand_in()?;
            }
        }
    }

    fn hear(&mut self, i: usize, event: Event, listener: &mut dyn Listener) -> Result<(), ApiError> {
        let ask = self.ask;
        let prompt = &self.prompts[i / ask.n];
        let lane = &mut self.lanes[i];
        match event {
            Event::Started { reused, divergence, .. } => {
                (lane.usage.cached, lane.usage.disk, lane.usage.restore) =
                    (reused.tokens, reused.disk, reused.time);
                lane.usage.diverged = divergence.and_then(|at| Some((at, *prompt.get(at)?)));
                lane.start = Instant::now();
                listener.started(i, &lane.usage)?;
            }
            Event::Progress { done, .. } => listener.progress(i, &lane.usage, done, lane.start.elapsed())?,
            Event::Token(picked) => {
                lane.take(self.served, ask, picked)?;
                lane.tell(i, listener)?;
                if lane.output.stopped().is_some() || ask.one_call && lane.output.called() > 0 {
                    let timings = lane.cancel();
                    lane.end(i, None, timings, listener)?;
                }
            }
            Event::Ended { why: Stop::Interrupted, .. } => return Err(stopping()),
            Event::Ended { why, timings } => {
                lane.end(i, Some(why), Some(timings), listener)?;
            }
            Event::Failed(line) => return Err(ApiError::new(500, line)),
        }
        Ok(())
    }
}

impl Lane {
    /// A token of the reply, or the one that ends it.
    fn take(&mut self, served: &Served, ask: &Ask, picked: Picked) -> Result<(), ApiError> {
        if self.usage.decoded == 0 {
            self.usage.first_token = self.start.elapsed();
        }
        self.usage.decoded += 1;
        if picked.last && !ask.ignore_eos && served.tokenizer.is_end(picked.token) {
            return Ok(());
        }
        if let Some(logprobs) = picked.logprob {
            self.told.push(Told { token: picked.token, logprob: logprobs.logprob, top: logprobs.top });
        }
        self.output.push(picked.token, &mut self.pieces).map_err(ApiError::inner)
    }

    /// Tells what there is of text. Probabilities are told with the text that they are of.
    fn tell(&mut self, i: usize, listener: &mut dyn Listener) -> Result<(), Gone> {
        if self.pieces.is_empty() {
            return Ok(());
        }
        let pieces = core::mem::take(&mut self.pieces);
        let told = core::mem::take(&mut self.told);
        let has_text = pieces.iter().any(|piece| matches!(piece, Piece::Text(_)));
        listener.pieces(i, &pieces, if has_text { &told } else { &[] })
    }

    /// Has the job end early; its numbers, if they come.
    fn cancel(&mut self) -> Option<Timings> {
        let ticket = self.ticket.as_ref()?;
        ticket.cancel();
        let start = Instant::now();
        while start.elapsed() < LAST_NUMBERS {
            match ticket.next(LAST_NUMBERS) {
                Some(Event::Ended { timings, .. }) => return Some(timings),
                Some(Event::Failed(_)) | None => return None,
                Some(_) => {}
            }
        }
        None
    }

    /// The reply is over; `why` is missing if that was our own wish.
    fn end(
        &mut self,
        i: usize,
        why: Option<Stop>,
        timings: Option<Timings>,
        listener: &mut dyn Listener,
    ) -> Result<(), Gone> {
        self.ended = true;
        let stop = self.output.stopped().map(String::from);
        if stop.is_none() {
            self.output.finish(&mut self.pieces);
            self.tell(i, listener)?;
        }
        if let Some(timings) = timings {
            let usage = &mut self.usage;
            (usage.prefill, usage.decode, usage.restore) = (timings.prefill, timings.decode, timings.restore);
            usage.first_token = timings.first_token;
            // A job that was cancelled may have gone on a little.
            if why.is_some() {
                usage.decoded = timings.decoded_tokens;
            }
        }
        let finish = match (stop, why) {
            (Some(stop), _) => Finish::Stop(stop),
            (None, Some(Stop::Length | Stop::ContextFull)) => Finish::Length,
            _ if self.output.called() > 0 => Finish::Calls,
            _ => Finish::End,
        };
        self.finish = Some(finish.openai());
        listener.ended(i, &finish, &self.usage)
    }
}
