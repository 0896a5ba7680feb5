//! Many jobs at once: what they share, and what they take from each other.

mod common;

use common::jobs::{Gate, LONG, Reply, alone, ask, gated, job, on_disk, open, reply, setup, start, status};
use common::life::{fresh, ids};
use common::{qwen2, qwen3};
use core::time::Duration;
use kinglet::generate::{self, Stop};
use kinglet::schedule::{Event, Job, Options, Scheduler, SlotState, Ticket};
use kinglet::session::Session;
use std::time::Instant;

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
fn a_storm_of_jobs_of_which_many_are_cancelled_leaves_nothing_behind() {
    let model = open(&qwen2());
    let dir = fresh("schedule-storm");
    // Room for one and a half of the longest.
    let mut with_disk = on_disk(256, &dir);
    with_disk.cache.tokens = Some(384);
    let mut session = Session::start(&model, &setup(256)).unwrap();
    let scheduler = start(&model, &with_disk, 4, 100);
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

/// Looks until it is so.
fn wait_until(holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn memory_given_back_changes_no_reply() {
    let model = open(&qwen3());
    let options = Options { idle_trim: Some(Duration::from_millis(20)), ..Options::default() };
    let scheduler = Scheduler::start(&model, &setup(512), options).unwrap();
    let prompt = ids(300, 1);
    let first = ask(&scheduler, job(&prompt, 40));
    for (trims, reuse) in [(1, false), (2, true)] {
        wait_until(|| scheduler.status().totals.trims == trims);
        let again = ask(&scheduler, Job { reuse, ..job(&prompt, 40) });
        assert_eq!(again.tokens, first.tokens);
        assert_eq!(again.reused.tokens > 0, reuse);
    }
}

#[test]
fn an_engine_that_hangs_shows_no_sign_of_life() {
    let model = open(&qwen2());
    let scheduler = start(&model, &setup(128), 1, 1);
    let gate = Gate::default();
    let ticket = scheduler.submit(gated(&gate, 0, &[5], 1)).unwrap();
    gate.asked(1);
    let beat = scheduler.beat();
    assert!(beat.is_some());
    for _ in 0..10 {
        scheduler.nudge();
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(scheduler.beat(), beat);
    }
    gate.let_go(1);
    reply(&ticket);
    // Nothing to do: only when it is asked to.
    for _ in 0..3 {
        let beat = scheduler.beat();
        wait_until(|| {
            scheduler.nudge();
            scheduler.beat() != beat
        });
    }
    scheduler.stop(LONG);
    assert_eq!(scheduler.beat(), None);
}
