//! Jobs on one engine: what each is answered, in which order, and how they end.

mod common;

use common::jobs::{
    Gate, Reply, Sampled, alone, ask, chooser, gated, job, open, reply, setup, start, status,
};
use common::life::ids;
use common::{qwen2, qwen3};
use kinglet::failure::Failure;
use kinglet::generate::{self, Choose, Stop};
use kinglet::schedule::{Greedy, Job, Options, Picked, Picker, Refused, Scheduler, SlotState, Ticket};
use kinglet::session::Session;
use kinglet::setup::Setup;

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
fn options_out_of_range_and_cpus_that_are_not_there_are_errors() {
    let model = open(&qwen2());
    for parallel in [0, 65] {
        let options = Options { parallel, queue: 1, ..Options::default() };
        assert!(Scheduler::start(&model, &setup(128), options).is_err());
    }
    let bad = Setup { cpus: Some(vec![100_000]), ..setup(128) };
    let Err(Failure::Failed(line)) = Scheduler::start(&model, &bad, Options::default()) else { panic!() };
    assert!(line.contains("--cpus"), "{line}");
}
