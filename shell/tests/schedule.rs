//! Many jobs on one engine: what each is answered, in which order, and what is left behind.

mod common;

use common::life::{durable, files, fresh, ids};
use common::{qwen2, qwen3};
use core::time::Duration;
use kinglet::cache::Reused;
use kinglet::failure::Failure;
use kinglet::generate::{self, Choose, Stop};
use kinglet::loader::Model;
use kinglet::sampling::{Chooser, Sampling};
use kinglet::schedule::{
    Event, Greedy, Job, Options, Picked, Picker, Refused, Scheduler, SlotState, Status, Ticket, Timings,
};
use kinglet::session::Session;
use kinglet::setup::Setup;
use kinglet::words::{Word, Words};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(120);

fn open(model: &str) -> Model {
    Model::open(Path::new(model)).unwrap()
}

fn setup(ctx: usize) -> Setup {
    Setup { ctx: Some(ctx), threads: Some(1), quiet: true, ..Setup::default() }
}

fn on_disk(ctx: usize, dir: &Path) -> Setup {
    let mut setup = setup(ctx);
    setup.cache.disk = Some(dir.to_path_buf());
    setup
}

fn start(model: &Model, setup: &Setup, parallel: usize, queue: usize) -> Scheduler {
    Scheduler::start(model, setup, Options { parallel, queue }).unwrap()
}

fn job(prompt: &[u32], most: usize) -> Job {
    let picker = Box::new(Greedy::default());
    let (prompt, salt) = (prompt.to_vec(), Vec::new());
    Job { prompt, salt, most, picker, reuse: true, progress: false, is_end: true }
}

/// What came of a job.
#[derive(Debug, Default)]
struct Reply {
    reused: Reused,
    divergence: Option<usize>,
    progress: Vec<(usize, usize)>,
    tokens: Vec<u32>,
    /// Why it ended, or the line of its failure.
    end: Option<Result<Stop, String>>,
    timings: Timings,
}

/// Waits for the end of a job.
#[track_caller]
fn reply(ticket: &Ticket) -> Reply {
    let mut reply = Reply::default();
    let mut started = false;
    while reply.end.is_none() {
        match ticket.next(LONG).expect("an event in time") {
            Event::Started { reused, divergence, .. } => {
                assert!(!core::mem::replace(&mut started, true), "started twice");
                (reply.reused, reply.divergence) = (reused, divergence);
            }
            Event::Progress { done, total } => reply.progress.push((done, total)),
            Event::Token(picked) => {
                assert!(started);
                reply.tokens.push(picked.token);
            }
            Event::Ended { why, timings } => (reply.end, reply.timings) = (Some(Ok(why)), timings),
            Event::Failed(line) => reply.end = Some(Err(line)),
        }
    }
    assert_eq!(ticket.next(Duration::ZERO), None, "nothing comes after the end");
    reply
}

#[track_caller]
fn ask(scheduler: &Scheduler, job: Job) -> Reply {
    reply(&scheduler.submit(job).unwrap())
}

/// The same by a session, alone.
fn alone(session: &mut Session, prompt: &[u32], most: usize, chooser: &mut dyn Choose) -> (Vec<u32>, Stop) {
    let reused = session.begin(prompt).unwrap();
    session.prefill(&prompt[reused.tokens..], &mut |_| {}).unwrap();
    let mut tokens = Vec::new();
    let mut emit = |token| {
        tokens.push(token);
        Ok(())
    };
    let reply = generate::generate(session, most, chooser, &|_| false, &mut emit).unwrap();
    (tokens, reply.stop)
}

/// Picks as the command line does.
struct Sampled(Chooser);

impl Picker for Sampled {
    fn pick(&mut self, logits: &mut [f32], before: &[u32]) -> Result<Picked, Failure> {
        let token = self.0.choose(logits, before)?;
        Ok(Picked { token, logprob: None, last: false })
    }
}

fn chooser(seed: usize, vocab: usize, setup: &Setup) -> Chooser {
    let seed = seed.to_string();
    let flags = ["--seed", &seed, "--temp", "1.5", "--top-k", "0", "--repeat-penalty", "1.2"];
    let mut words = Words::new(lexopt::Parser::from_args(flags), "test", "");
    let mut sampling = Sampling::default();
    while let Some(Word::Flag(flag)) = words.advance().unwrap() {
        assert!(sampling.accept(&flag, &mut words).unwrap());
    }
    sampling.start(vocab, setup).unwrap()
}

/// A picker that holds the engine up until it is let go, and writes down that it was asked.
#[derive(Clone, Default)]
struct Gate {
    name: usize,
    shared: Arc<(Mutex<GateState>, Condvar)>,
}

#[derive(Default)]
struct GateState {
    asked: Vec<usize>,
    open: usize,
}

impl Gate {
    fn named(&self, name: usize) -> Gate {
        Gate { name, shared: Arc::clone(&self.shared) }
    }

    /// Lets `n` more picks of all its copies through.
    fn let_go(&self, n: usize) {
        self.shared.0.lock().unwrap().open += n;
        self.shared.1.notify_all();
    }

    /// Waits until so many picks were asked for; who asked.
    fn asked(&self, n: usize) -> Vec<usize> {
        let state = self.shared.0.lock().unwrap();
        let (state, late) =
            self.shared.1.wait_timeout_while(state, LONG, |state| state.asked.len() < n).unwrap();
        assert!(!late.timed_out());
        state.asked.clone()
    }
}

impl Picker for Gate {
    fn pick(&mut self, logits: &mut [f32], before: &[u32]) -> Result<Picked, Failure> {
        let mut state = self.shared.0.lock().unwrap();
        state.asked.push(self.name);
        self.shared.1.notify_all();
        state = self.shared.1.wait_while(state, |state| state.open == 0).unwrap();
        state.open -= 1;
        drop(state);
        Greedy::default().pick(logits, before)
    }
}

fn gated(gate: &Gate, name: usize, prompt: &[u32], most: usize) -> Job {
    Job { picker: Box::new(gate.named(name)), ..job(prompt, most) }
}

/// A status in which the numbers add up.
#[track_caller]
fn status(scheduler: &Scheduler) -> Status {
    let status = scheduler.status();
    let (totals, kv) = (&status.totals, &status.kv);
    let over = totals.ended + totals.cancelled + totals.failed;
    assert_eq!(totals.accepted, over + (status.active + status.queued) as u64, "{status:?}");
    assert_eq!(kv.blocks, kv.free + kv.cached + kv.private + kv.shared, "{kv:?}");
    status
}

#[test]
fn a_reply_does_not_depend_on_the_company() {
    for model in [qwen2(), qwen3()] {
        let model = open(&model);
        let setup = Setup { threads: Some(2), ..setup(512) };
        let scheduler = start(&model, &setup, 4, 64);
        let vocab = scheduler.config().vocab;
        let lengths = [300, 1, 33, 64, 5, 200, 96, 17, 450, 31];
        let prompts: Vec<Vec<u32>> = lengths.iter().enumerate().map(|(i, n)| ids(*n, i % 4)).collect();
        let most = |i: usize| [40, 7, 100, 1][i % 4];
        let submit = |(i, prompt): (usize, &Vec<u32>)| {
            let plain = job(prompt, most(i));
            let sampled = Box::new(Sampled(chooser(i, vocab, &setup)));
            let tickets = [plain, Job { picker: sampled, ..job(prompt, most(i)) }];
            tickets.map(|job| scheduler.submit(job).unwrap())
        };
        let tickets: Vec<[Ticket; 2]> = prompts.iter().enumerate().map(submit).collect();
        let mut session = Session::start(&model, &setup).unwrap();
        for (i, (prompt, tickets)) in prompts.iter().zip(&tickets).enumerate() {
            for (kind, ticket) in tickets.iter().enumerate() {
                let mut chooser: Box<dyn Choose> =
                    if kind == 0 { Box::new(generate::Greedy) } else { Box::new(chooser(i, vocab, &setup)) };
                let (tokens, stop) = alone(&mut session, prompt, most(i), &mut *chooser);
                let reply = reply(ticket);
                assert_eq!((&reply.tokens, &reply.end), (&tokens, &Some(Ok(stop))), "prompt {i}, {kind}");
                assert_eq!(reply.timings.decoded_tokens, tokens.len());
                assert_eq!(reply.timings.prompt_tokens, prompt.len());
                assert_eq!(reply.timings.cached_tokens, reply.reused.tokens);
            }
        }
        let totals = status(&scheduler).totals;
        assert_eq!((totals.accepted, totals.ended, totals.failed), (20, 20, 0));
        assert_eq!(totals.prompt_tokens, 2 * lengths.iter().sum::<usize>() as u64);
    }
}

#[test]
fn a_reply_ends_where_the_context_or_the_picker_does() {
    let model = open(&qwen2());
    let setup = setup(128);
    let scheduler = start(&model, &setup, 2, 8);
    let mut session = Session::start(&model, &setup).unwrap();
    for prompt in [ids(128, 1), ids(100, 2)] {
        let (tokens, stop) = alone(&mut session, &prompt, usize::MAX, &mut generate::Greedy);
        let reply = ask(&scheduler, job(&prompt, usize::MAX));
        assert_eq!(stop, Stop::ContextFull);
        assert_eq!((reply.tokens, reply.end), (tokens, Some(Ok(stop))));
    }
    let reads_only = ask(&scheduler, job(&ids(100, 3), 0));
    assert_eq!((reads_only.tokens.len(), reads_only.end), (0, Some(Ok(Stop::Length))));
    // An end token is told, and ends the reply if that is wanted.
    let prompt = ids(30, 5);
    let (tokens, _) = alone(&mut session, &prompt, 8, &mut generate::Greedy);
    let ends = vec![tokens[2]];
    let at = tokens.iter().position(|token| *token == tokens[2]).unwrap();
    let with_end = |is_end| {
        let picker = Box::new(Greedy { ends: ends.clone() });
        ask(&scheduler, Job { picker, is_end, ..job(&prompt, 8) })
    };
    let ended = with_end(true);
    assert_eq!((&ended.tokens[..], ended.end), (&tokens[..=at], Some(Ok(Stop::End(tokens[2])))));
    assert_eq!((with_end(false).tokens, with_end(false).end), (tokens, Some(Ok(Stop::Length))));
}

#[test]
fn jobs_start_in_order_and_one_too_many_is_refused() {
    let model = open(&qwen2());
    let scheduler = start(&model, &setup(128), 1, 2);
    let gate = Gate::default();
    let first = scheduler.submit(gated(&gate, 1, &ids(40, 1), 2)).unwrap();
    gate.asked(1);
    let second = scheduler.submit(gated(&gate, 2, &ids(40, 2), 1)).unwrap();
    let third = scheduler.submit(gated(&gate, 3, &ids(40, 3), 1)).unwrap();
    let Err(Refused::Full { retry_after }) = scheduler.submit(job(&[1], 1)) else { panic!() };
    assert!((1..=120).contains(&retry_after));
    let seen = status(&scheduler);
    assert_eq!((seen.active, seen.queued, seen.totals.refused), (1, 2, 1));
    gate.let_go(4);
    for ticket in [&first, &second, &third] {
        assert_eq!(reply(ticket).end, Some(Ok(Stop::Length)));
    }
    assert_eq!(gate.asked(4), [1, 1, 2, 3]);
    // There is room again.
    assert_eq!(ask(&scheduler, job(&[1], 1)).end, Some(Ok(Stop::Length)));
    let seen = status(&scheduler);
    assert_eq!((seen.active, seen.queued, seen.totals.ended), (0, 0, 4));
    let serials: Vec<u64> = seen.last.iter().map(|last| last.serial).collect();
    assert_eq!(serials, [first.serial(), second.serial(), third.serial(), third.serial() + 1]);
}

#[test]
fn what_cannot_be_computed_is_refused_or_fails_alone() {
    struct Broken;
    impl Picker for Broken {
        fn pick(&mut self, _: &mut [f32], before: &[u32]) -> Result<Picked, Failure> {
            if before.len() > 12 { panic!("meant") } else { Err(Failure::new("no such token")) }
        }
    }
    struct Wild;
    impl Picker for Wild {
        fn pick(&mut self, _: &mut [f32], _: &[u32]) -> Result<Picked, Failure> {
            Ok(Picked { token: 1 << 30, logprob: None, last: false })
        }
    }
    let model = open(&qwen2());
    let setup = setup(128);
    let scheduler = start(&model, &setup, 4, 8);
    let long = scheduler.submit(job(&ids(129, 1), 1)).err();
    assert_eq!(long, Some(Refused::TooLong { tokens: 129, ctx: 128 }));
    let failure = |reply: Reply| reply.end.unwrap().unwrap_err();
    assert!(failure(ask(&scheduler, job(&[], 1))).contains("no tokens"));
    assert!(failure(ask(&scheduler, job(&[1, 1 << 30], 1))).contains("not in the vocabulary"));
    // The others of the same steps do not notice.
    let gate = Gate::default();
    let first = scheduler.submit(gated(&gate, 0, &ids(9, 9), 1)).unwrap();
    gate.asked(1);
    let good = scheduler.submit(job(&ids(50, 3), 60)).unwrap();
    let broken = |n| scheduler.submit(Job { picker: Box::new(Broken), ..job(&ids(n, 4), 9) }).unwrap();
    let (fails, panics) = (broken(10), broken(20));
    let wild = scheduler.submit(Job { picker: Box::new(Wild), ..job(&ids(10, 4), 9) }).unwrap();
    gate.let_go(1);
    assert_eq!(reply(&first).end, Some(Ok(Stop::Length)));
    assert_eq!(failure(reply(&fails)), "no such token");
    assert!(failure(reply(&panics)).contains("internal error"));
    // A step that the engine refuses as a whole.
    let wild = reply(&wild);
    assert_eq!(wild.tokens, [1 << 30]);
    assert!(failure(wild).contains("not in the vocabulary"));
    let mut session = Session::start(&model, &setup).unwrap();
    let expected = alone(&mut session, &ids(50, 3), 60, &mut generate::Greedy).0;
    assert_eq!(reply(&good).tokens, expected);
    let seen = status(&scheduler);
    assert_eq!((seen.totals.failed, seen.totals.ended, seen.kv.private), (5, 2, 0));
}

#[test]
fn a_cancelled_job_ends_before_its_next_step_and_frees_its_blocks() {
    let model = open(&qwen2());
    let setup = setup(256);
    let scheduler = start(&model, &setup, 2, 8);
    let gate = Gate::default();
    let running = scheduler.submit(gated(&gate, 1, &ids(70, 1), 100)).unwrap();
    gate.asked(1);
    let other = scheduler.submit(job(&ids(40, 2), 100)).unwrap();
    let queued = scheduler.submit(job(&ids(40, 3), 100)).unwrap();
    let dropped = scheduler.submit(job(&ids(40, 4), 100)).unwrap();
    gate.let_go(2);
    gate.asked(3);
    running.cancel();
    queued.cancel();
    drop(dropped);
    gate.let_go(1);
    // The pick that was under way was the last one.
    assert_eq!(reply(&running).end, Some(Ok(Stop::Interrupted)));
    assert_eq!(gate.asked(3).len(), 3);
    assert_eq!(reply(&queued).end, Some(Ok(Stop::Interrupted)));
    let mut session = Session::start(&model, &setup).unwrap();
    let expected = alone(&mut session, &ids(40, 2), 100, &mut generate::Greedy).0;
    assert_eq!(reply(&other).tokens, expected);
    let seen = status(&scheduler);
    assert_eq!((seen.totals.cancelled, seen.totals.ended), (3, 1));
    assert_eq!((seen.kv.private, seen.kv.shared, seen.active), (0, 0, 0));
    assert!(seen.slots.iter().all(|slot| slot.state == SlotState::Idle));
    // What it had computed is found again.
    assert!(ask(&scheduler, job(&ids(70, 1), 1)).reused.tokens >= 64);
}

#[test]
fn prefixes_are_found_in_memory_and_salts_keep_them_apart() {
    let model = open(&qwen2());
    let scheduler = start(&model, &setup(512), 2, 8);
    let (head, tail) = (ids(100, 1), ids(60, 2));
    let both: Vec<u32> = head.iter().chain(&tail).copied().collect();
    let first = ask(&scheduler, job(&both, 4));
    assert_eq!((first.reused.tokens, first.divergence), (0, None));
    // A follow-up goes on where it was: nothing differs but what is new.
    let follow_up: Vec<u32> = both.iter().chain(&first.tokens).chain(&[7, 8, 9]).copied().collect();
    let second = ask(&scheduler, job(&follow_up, 4));
    assert_eq!((second.reused.tokens, second.reused.disk), (163, 0));
    assert_eq!(second.divergence, Some(164));
    // The topic changes after 100 tokens.
    let other: Vec<u32> = head.iter().chain(&[198, 197, 196]).copied().collect();
    let third = ask(&scheduler, job(&other, 1));
    assert_eq!((third.reused.tokens, third.divergence), (100, Some(100)));
    assert_eq!(ask(&scheduler, job(&both, 1)).divergence, None);
    // Neither what is found nor what differs tells one salt of another.
    let salted = |salt: &[u8]| ask(&scheduler, Job { salt: salt.to_vec(), ..job(&both, 4) });
    let foreign = salted(b"key 2");
    assert_eq!((foreign.reused.tokens, foreign.divergence), (0, None));
    assert_eq!(foreign.tokens, first.tokens);
    assert_eq!(salted(b"key 2").reused.tokens, 159);
    assert_eq!(ask(&scheduler, Job { reuse: false, ..job(&both, 4) }).reused.tokens, 0);
    let seen = status(&scheduler);
    assert!(seen.kv.cached > 0);
    let map = scheduler.kv_map();
    assert_eq!((map.len(), map.iter().filter(|b| **b == 1).count()), (seen.kv.blocks, seen.kv.cached));
    scheduler.clear();
    assert_eq!(status(&scheduler).kv.free, seen.kv.blocks);
    assert!(scheduler.kv_map().iter().all(|block| *block == 0));
    let again = ask(&scheduler, job(&both, 4));
    assert_eq!((again.reused.tokens, again.divergence, again.tokens), (0, None, first.tokens));
}

#[test]
fn one_prefix_is_computed_once_though_all_come_together() {
    let model = open(&qwen2());
    let setup = setup(1024);
    let scheduler = start(&model, &setup, 5, 8);
    let gate = Gate::default();
    let first = scheduler.submit(gated(&gate, 0, &[5], 1)).unwrap();
    gate.asked(1);
    let prompt = ids(300, 2);
    let with = |i: u32| -> Vec<u32> { prompt.iter().copied().chain([i, i + 1]).collect() };
    let tickets: Vec<Ticket> = (0..4).map(|i| scheduler.submit(job(&with(i / 2), 10)).unwrap()).collect();
    gate.let_go(1);
    reply(&first);
    let replies: Vec<Reply> = tickets.iter().map(reply).collect();
    let reused: Vec<usize> = replies.iter().map(|reply| reply.reused.tokens).collect();
    assert_eq!(reused[0], 0);
    assert!(reused[1..].iter().all(|tokens| *tokens >= 288), "{reused:?}");
    let mut session = Session::start(&model, &setup).unwrap();
    for (i, reply) in (0..).zip(&replies) {
        assert_eq!(reply.tokens, alone(&mut session, &with(i / 2), 10, &mut generate::Greedy).0);
    }
}

#[test]
fn a_long_prompt_comes_in_slices_between_the_tokens_of_others() {
    let model = open(&qwen2());
    let scheduler = start(&model, &setup(2048), 2, 8);
    let gate = Gate::default();
    let writing = scheduler.submit(gated(&gate, 1, &ids(10, 1), 40)).unwrap();
    gate.asked(1);
    let prompt = ids(1500, 2);
    let reading = scheduler.submit(Job { progress: true, ..job(&prompt, 1) }).unwrap();
    // A step at a time: each has a token of the one and a slice of the other.
    gate.let_go(2);
    gate.asked(3);
    let seen: Vec<Event> = core::iter::from_fn(|| reading.next(Duration::ZERO)).collect();
    let [Event::Started { .. }, Event::Progress { done: 64, total: 1500 }] = seen[..] else {
        panic!("{seen:?}")
    };
    let slots = scheduler.status().slots;
    assert!(slots.iter().all(|slot| slot.state != SlotState::Idle), "{slots:?}");
    gate.let_go(38);
    let mut done = 64;
    loop {
        match reading.next(LONG).unwrap() {
            Event::Progress { done: more, total: 1500 } => {
                assert!(more > done);
                done = more;
            }
            Event::Token(_) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(done, 1500);
    assert_eq!(reply(&writing).tokens.len(), 40);
}

#[test]
fn when_blocks_run_out_the_youngest_give_way_and_come_back() {
    for model in [qwen2(), qwen3()] {
        let model = open(&model);
        // 8 blocks, of which each job needs 7 in the end; with reuse and without.
        let setup = setup(256);
        let mut session = Session::start(&model, &setup).unwrap();
        for reuse in [true, false] {
            let scheduler = start(&model, &setup, 4, 8);
            let prompt = |i: usize| ids(20 + i, i + 1);
            let submit = |i| scheduler.submit(Job { reuse, ..job(&prompt(i), 190) }).unwrap();
            let tickets: Vec<Ticket> = (0..6).map(submit).collect();
            for (i, ticket) in tickets.iter().enumerate() {
                let reply = reply(ticket);
                let expected = alone(&mut session, &prompt(i), 190, &mut generate::Greedy);
                assert_eq!((reply.tokens, reply.end), (expected.0, Some(Ok(expected.1))), "job {i}");
            }
            let seen = status(&scheduler);
            assert!(seen.totals.preempted > 0);
            assert_eq!((seen.totals.ended, seen.kv.private, seen.kv.shared), (6, 0, 0));
        }
    }
}

#[test]
fn stopping_drains_flushes_and_the_next_process_finds_it() {
    let model = open(&qwen2());
    let dir = fresh("schedule-disk");
    let mut setup = on_disk(512, &dir);
    setup.cache.tokens = Some(2048);
    let prompts: Vec<Vec<u32>> = (0..6).map(|i| ids(100 + 10 * i, i + 1)).collect();
    let scheduler = start(&model, &setup, 2, 8);
    let tickets: Vec<Ticket> =
        prompts.iter().map(|prompt| scheduler.submit(job(prompt, 20)).unwrap()).collect();
    assert!(scheduler.stop(LONG));
    assert_eq!(scheduler.submit(job(&[1], 1)).err(), Some(Refused::Stopping));
    let before: Vec<Reply> = tickets.iter().map(reply).collect();
    assert!(before.iter().all(|reply| reply.end == Some(Ok(Stop::Length))));
    let kv = scheduler.status().kv;
    assert!(kv.saved >= 6 * 3 && kv.unsaved == 0, "{kv:?}");
    assert_eq!(scheduler.kv_map().iter().filter(|b| **b & 8 != 0).count(), kv.saved);
    drop(scheduler);
    let scheduler = start(&model, &setup, 2, 8);
    assert!(scheduler.status().folder.is_some());
    for (prompt, before) in prompts.iter().zip(&before) {
        // Tails too: all but the last token of what was computed, which the follow-up has behind it.
        let computed = prompt.iter().chain(&before.tokens[..19]).count();
        let follow_up: Vec<u32> = prompt.iter().chain(&before.tokens).chain(&[3]).copied().collect();
        let reply = ask(&scheduler, job(&follow_up, 5));
        assert_eq!((reply.reused.tokens, reply.reused.disk), (computed, computed));
        assert_eq!(reply.timings.disk_tokens, computed);
        let mut session = Session::start(&model, &self::setup(512)).unwrap();
        assert_eq!(reply.tokens, alone(&mut session, &follow_up, 5, &mut generate::Greedy).0);
    }
    assert!(scheduler.status().store.is_some_and(|store| store.blocks_loaded > 0));
}

#[test]
fn whoever_is_too_slow_for_the_end_is_cancelled() {
    let model = open(&qwen2());
    let scheduler = start(&model, &setup(2048), 2, 8);
    let tickets: Vec<Ticket> =
        (0..5).map(|i| scheduler.submit(job(&ids(1500, i), usize::MAX)).unwrap()).collect();
    assert!(!scheduler.stop(Duration::ZERO));
    let ends: Vec<_> = tickets.iter().map(|ticket| reply(ticket).end).collect();
    assert!(ends.iter().all(|end| *end == Some(Ok(Stop::Interrupted))), "{ends:?}");
    // Again, and for a scheduler without work.
    assert!(!scheduler.stop(LONG));
    assert!(start(&model, &setup(128), 1, 1).stop(Duration::ZERO));
}

#[test]
fn with_sync_an_answer_has_ended_when_it_is_on_the_disk() {
    let model = open(&qwen2());
    let dir = fresh("schedule-sync");
    let mut setup = on_disk(512, &dir);
    setup.cache.sync = true;
    let scheduler = start(&model, &setup, 3, 8);
    let prompts: Vec<Vec<u32>> = (0..5).map(|i| ids(70 + i, i + 1)).collect();
    let tickets: Vec<Ticket> =
        prompts.iter().map(|prompt| scheduler.submit(job(prompt, 30)).unwrap()).collect();
    for (prompt, ticket) in prompts.iter().zip(&tickets) {
        let reply = reply(ticket);
        assert_eq!(reply.end, Some(Ok(Stop::Length)));
        let all: Vec<u32> = prompt.iter().chain(&reply.tokens[..29]).copied().collect();
        assert_eq!(durable(&dir, &all), all.len() / 32 * 32);
    }
    let tails = files(&dir).iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "tail")).count();
    assert_eq!(tails, prompts.iter().filter(|prompt| (prompt.len() + 29) % 32 != 0).count());
    status(&scheduler);
    drop(scheduler);
    // Where there is no room on the disk, that is said instead, and the engine goes on.
    let dir = fresh("schedule-sync-full");
    let mut setup = Setup { cache: setup.cache.clone(), ..setup };
    setup.cache.disk = Some(dir);
    setup.cache.max_files = 1;
    let scheduler = start(&model, &setup, 2, 8);
    for seed in [1, 2] {
        let reply = ask(&scheduler, job(&ids(200, seed), 10));
        let line = reply.end.unwrap().unwrap_err();
        assert!(line.contains("--disk-kv-sync: the reply is not safe"), "{line}");
        assert_eq!(reply.tokens.len(), 10);
    }
}

#[test]
fn a_storm_of_jobs_of_which_many_are_cancelled_leaves_nothing_behind() {
    let model = open(&qwen2());
    let dir = fresh("schedule-storm");
    // Room for one and a half of the longest.
    let mut setup = on_disk(256, &dir);
    setup.cache.tokens = Some(384);
    let mut session = Session::start(&model, &self::setup(256)).unwrap();
    let scheduler = start(&model, &setup, 4, 100);
    let mut state = 1u64;
    let mut random = |n: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % n
    };
    let mut tickets = Vec::new();
    for _ in 0..80 {
        // Many begin alike.
        let mut prompt = ids(1 + random(200), random(3));
        prompt.push(random(200) as u32);
        let most = random(60);
        let (salt, reuse) = (vec![0; random(2)], random(8) > 0);
        let ticket = scheduler.submit(Job { salt, reuse, ..job(&prompt, most) }).unwrap();
        match random(5) {
            0 => drop(ticket),
            1 => {
                // At some moment of its life.
                std::thread::sleep(Duration::from_micros(random(3000) as u64));
                ticket.cancel();
                tickets.push((ticket, prompt, most, true));
            }
            _ => tickets.push((ticket, prompt, most, false)),
        }
    }
    for (ticket, prompt, most, cancelled) in &tickets {
        let reply = reply(ticket);
        let (tokens, stop) = alone(&mut session, prompt, *most, &mut generate::Greedy);
        if reply.end == Some(Ok(Stop::Interrupted)) {
            assert!(cancelled);
            assert!(tokens.starts_with(&reply.tokens));
        } else {
            assert_eq!((reply.tokens, reply.end), (tokens, Some(Ok(stop))));
        }
    }
    let seen = status(&scheduler);
    assert_eq!((seen.totals.accepted, seen.totals.failed, seen.active, seen.queued), (80, 0, 0, 0));
    assert!(seen.totals.cancelled > 0 && seen.totals.cached_tokens > 0);
    assert!(scheduler.stop(LONG));
    let kv = scheduler.status().kv;
    assert_eq!((kv.private, kv.shared, kv.unsaved), (0, 0, 0));
}

#[test]
fn options_out_of_range_and_cpus_that_are_not_there_are_errors() {
    let model = open(&qwen2());
    for parallel in [0, 65] {
        let options = Options { parallel, queue: 1 };
        assert!(Scheduler::start(&model, &setup(128), options).is_err());
    }
    let bad = Setup { cpus: Some(vec![100_000]), ..setup(128) };
    let Err(Failure::Failed(line)) = Scheduler::start(&model, &bad, Options::default()) else { panic!() };
    assert!(line.contains("--cpus"), "{line}");
}
