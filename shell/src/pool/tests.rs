//! Every task once, whatever the threads do.

use super::*;

fn pool(threads: usize) -> Pool {
    Pool::new(threads, |_| {}).unwrap()
}

#[test]
fn every_task_runs_once_in_many_runs_with_1_to_8_threads() {
    for threads in 1..=8 {
        let pool = pool(threads);
        assert_eq!(pool.count(), threads);
        for round in 0..400 {
            let tasks = [0, 1, 2, 7, 64][round % 5];
            let hits: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
            pool.run(tasks, &|i| {
                hits[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(hits.iter().all(|h| h.load(Ordering::Relaxed) == 1), "{threads} {round}");
        }
    }
}

#[test]
fn sleeping_workers_wake_up() {
    let pool = pool(3);
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(5));
        let sum = AtomicUsize::new(0);
        pool.run(100, &|i| {
            sum.fetch_add(i, Ordering::Relaxed);
        });
        assert_eq!(sum.load(Ordering::Relaxed), 4950);
    }
}

#[test]
fn idle_workers_go_to_sleep() {
    let pool = pool(4);
    for _ in 0..3 {
        pool.run(8, &|_| {});
        // They spin for microseconds; on a busy machine it takes longer until they are given a CPU.
        let deadline = Instant::now() + Duration::from_secs(60);
        while pool.shared.sleeping.load(Ordering::SeqCst) < 3 {
            assert!(Instant::now() < deadline, "an idle worker keeps its CPU");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_slow_task_does_not_hold_up_the_others() {
    let pool = pool(2);
    let (others, at_end) = (AtomicUsize::new(0), AtomicUsize::new(0));
    pool.run(50, &|i| {
        if i == 0 {
            // The other thread takes all the rest in the meantime.
            let deadline = Instant::now() + Duration::from_secs(10);
            while others.load(Ordering::SeqCst) < 49 && Instant::now() < deadline {
                std::thread::yield_now();
            }
            at_end.store(others.load(Ordering::SeqCst), Ordering::SeqCst);
        } else {
            others.fetch_add(1, Ordering::SeqCst);
        }
    });
    assert_eq!(at_end.load(Ordering::SeqCst), 49);
}

#[test]
fn a_worker_that_never_comes_does_not_hold_up_a_run() {
    // The worker stays in its setup until the run is over.
    let (send, receive) = std::sync::mpsc::channel::<()>();
    let receive = Mutex::new(receive);
    let pool = Pool::new(2, move |_| hold(&receive).recv().unwrap_or(())).unwrap();
    let sum = AtomicUsize::new(0);
    pool.run(10, &|i| {
        sum.fetch_add(i, Ordering::Relaxed);
    });
    assert_eq!(sum.load(Ordering::Relaxed), 45);
    drop(send);
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
    let pool = pool(4);
    for bad in 0..20 {
        let done = AtomicUsize::new(0);
        let run = || {
            pool.run(20, &|i| {
                if i == bad {
                    std::panic::resume_unwind(Box::new("task"));
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        };
        let payload = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"task"));
    }
    let done = AtomicUsize::new(0);
    pool.run(20, &|_| {
        done.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(done.load(Ordering::Relaxed), 20);
}

#[test]
fn nested_and_concurrent_runs_are_complete() {
    let pool = pool(3);
    let sum = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..50 {
                    pool.run(8, &|_| {
                        pool.run(4, &|i| {
                            sum.fetch_add(i, Ordering::Relaxed);
                        });
                    });
                }
            });
        }
    });
    assert_eq!(sum.load(Ordering::Relaxed), 3 * 50 * 8 * 6);
}
