//! How a scheduler ends, and what is on the disk then.

mod common;

use common::jobs::{LONG, Reply, alone, ask, job, on_disk, open, reply, setup, start, status};
use common::life::{durable, files, fresh, ids};
use common::qwen2;
use core::time::Duration;
use kinglet::generate::{self, Stop};
use kinglet::schedule::{Refused, Ticket};
use kinglet::session::Session;
use kinglet::setup::Setup;

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
