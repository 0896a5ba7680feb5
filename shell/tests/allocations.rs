//! No heap allocation between load and the last token of a reply.
#![allow(unsafe_code)]

mod common;

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use kinglet::failure::Failure;
use kinglet::generate::{Greedy, generate};
use kinglet::loader::Model;
use kinglet::sampling::Sampling;
use kinglet::schedule::{self, Event, Job, Options, Picked, Picker, Scheduler};
use kinglet::session::Session;
use kinglet::setup::Setup;
use kinglet::vocabulary::Vocabulary;
use kinglet::words::{Word, Words};
use kinglet_core::token::StreamDecoder;
use std::alloc::System;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Allocations by any thread of this process.
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Allocations by this thread.
    static MINE: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to `System` with the caller's arguments; counting touches one atomic and one cell
// of the thread, which needs no allocation and no end of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        MINE.set(MINE.get() + 1);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above; `at` came from `System`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn sampling(flags: &[&str]) -> Sampling {
    let mut words = Words::new(lexopt::Parser::from_args(flags), "test", &[]);
    let mut sampling = Sampling::default();
    while let Some(Word::Flag(flag)) = words.advance().unwrap() {
        assert!(sampling.accept(&flag, &mut words).unwrap());
    }
    sampling
}

// The only test of this file: other threads of a test process would be counted too.
#[test]
fn a_reply_allocates_nothing() {
    let model = Model::open(Path::new(&common::qwen3())).unwrap();
    // With the log in, a trace is written too.
    let name = format!("kinglet-allocations-{}", std::process::id());
    let trace = cfg!(feature = "defmt").then(|| std::env::temp_dir().join(name));
    let setup =
        Setup { ctx: Some(256), threads: Some(3), quiet: true, trace: trace.clone(), ..Setup::default() };
    let vocabulary = Vocabulary::open(&model).unwrap();
    let mut session = Session::start(&model, &setup).unwrap();
    let flags = ["--seed", "3", "--repeat-penalty", "1.1", "--presence-penalty", "0.5"];
    let mut chooser = sampling(&flags).start(session.config().vocab, &setup).unwrap();
    let mut decoder = StreamDecoder::new(vocabulary.tokenizer, true);
    let shown = Cell::new(0);
    // Starting a thread allocates: each of the three takes a task, and none ends before all are there.
    let arrived = AtomicUsize::new(0);
    session.workers().run(3, &|_| {
        arrived.fetch_add(1, Ordering::SeqCst);
        while arrived.load(Ordering::SeqCst) < 3 {
            std::thread::yield_now();
        }
    });
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    session.prefill(&[1, 2, 3], &mut |_| {}).unwrap();
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0, "reading the prompt allocates");
    let reply = generate(&mut session, 100, &mut chooser, &|_| false, &mut |token| {
        decoder.push(token, &mut |part| shown.set(shown.get() + part.len())).unwrap();
        Ok(())
    });
    let after = ALLOCATIONS.load(Ordering::Relaxed);
    assert_eq!(after - before, 0);
    assert_eq!(reply.unwrap().tokens, 100);
    assert!(shown.get() > 0);
    if let Some(trace) = trace {
        let bytes = std::fs::read(&trace).unwrap();
        std::fs::remove_file(&trace).unwrap();
        // Every frame ends with a zero; a step has several.
        assert!(bytes.iter().filter(|b| **b == 0).count() > 100);
    }
    with_a_cache_on_disk(&model);
    on_the_thread_of_a_scheduler(&model);
}

/// The thread that computes allocates nothing either when blocks go to the disk and come from it; the one
/// that writes may.
fn with_a_cache_on_disk(model: &Model) {
    let dir = common::scratch().join("allocations");
    let mut setup = Setup { ctx: Some(512), threads: Some(1), quiet: true, ..Setup::default() };
    setup.cache.disk = Some(dir.clone());
    let ids: Vec<u32> = (0..300).map(|i| i * 7 % 200).collect();
    // The block in which the prompt ends has the first reply in it.
    for from_disk in [0, 288] {
        let mut session = Session::start(model, &setup).unwrap();
        let before = MINE.get();
        let reused = session.begin(&ids).unwrap();
        session.prefill(&ids[reused.tokens..], &mut |_| {}).unwrap();
        let reply = generate(&mut session, 50, &mut Greedy, &|_| false, &mut |_| Ok(()));
        session.settle(&setup).unwrap();
        assert_eq!(MINE.get() - before, 0, "{reused:?}");
        assert_eq!((reply.unwrap().tokens, reused.disk), (50, from_disk));
        session.finish(&setup);
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Writes down how often its thread has allocated by the time of each pick.
struct Counted(Arc<Mutex<Vec<usize>>>);

impl Picker for Counted {
    fn pick(&mut self, logits: &mut [f32], before: &[u32]) -> Result<Picked, Failure> {
        // Within its capacity.
        self.0.lock().unwrap().push(MINE.get());
        schedule::Greedy::default().pick(logits, before)
    }
}

/// Several replies at once allocate nothing but places for events that nobody has taken yet.
fn on_the_thread_of_a_scheduler(model: &Model) {
    let setup = Setup { ctx: Some(512), threads: Some(1), quiet: true, ..Setup::default() };
    let scheduler =
        Scheduler::start(model, &setup, Options { parallel: 2, queue: 2, ..Options::default() }).unwrap();
    let submit = |seed: u32| {
        let counts = Arc::new(Mutex::new(Vec::with_capacity(200)));
        let (picker, salt) = (Box::new(Counted(Arc::clone(&counts))), Vec::new());
        let prompt = (0..50).map(|i| i * seed % 200).collect();
        let job = Job { prompt, salt, most: 200, picker, reuse: true, progress: false, is_end: true };
        (scheduler.submit(job).unwrap(), counts)
    };
    let jobs = [submit(3), submit(7)];
    for (ticket, _) in &jobs {
        while !matches!(ticket.next(Duration::from_secs(60)), Some(Event::Ended { .. }) | None) {}
    }
    for (_, counts) in &jobs {
        let counts = counts.lock().unwrap();
        assert_eq!(counts.len(), 200);
        // While the other one starts or ends, and for 200 events of each, whose places double.
        let steps = counts.windows(2).filter(|pair| pair[1] > pair[0]).count();
        assert!(steps <= 16, "{counts:?}");
    }
}
