//! Between a job's client and the engine's thread: events one way, a wish to end the other. Must not know
//! what events mean.

use super::Event;
use super::desk::hold;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

/// Events that are waited for without an allocation.
const USUAL: usize = 8;

struct Mailbox {
    mail: Mutex<Mail>,
    news: Condvar,
    cancelled: AtomicBool,
}

struct Mail {
    events: VecDeque<Event>,
    /// Nothing comes after these events.
    over: bool,
}

/// A job from its client's side. Dropping it cancels the job.
pub struct Ticket {
    serial: u64,
    mailbox: Arc<Mailbox>,
}

/// The other end. If it is dropped before the last event, the client hears that the engine has ended.
pub(super) struct Outbox {
    mailbox: Arc<Mailbox>,
}

/// Both ends for the job that was accepted as number `serial`.
pub(super) fn pair(serial: u64) -> (Outbox, Ticket) {
    let mail = Mail { events: VecDeque::with_capacity(USUAL), over: false };
    let mailbox =
        Arc::new(Mailbox { mail: Mutex::new(mail), news: Condvar::new(), cancelled: AtomicBool::new(false) });
    (Outbox { mailbox: Arc::clone(&mailbox) }, Ticket { serial, mailbox })
}

impl Ticket {
    /// The number of the job, counted from 1: its name in [`super::Status`].
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// The next event, waited for as long as `patience`; `None` if there is none yet, and at once after the
    /// last.
    pub fn next(&self, patience: Duration) -> Option<Event> {
        let start = Instant::now();
        let mut mail = hold(&self.mailbox.mail);
        loop {
            if let Some(event) = mail.events.pop_front() {
                return Some(event);
            }
            let left = patience.saturating_sub(start.elapsed());
            if mail.over || left.is_zero() {
                return None;
            }
            mail = self.mailbox.news.wait_timeout(mail, left).unwrap_or_else(|e| e.into_inner()).0;
        }
    }

    /// Has the job end before its next step. The last event comes all the same.
    pub fn cancel(&self) {
        self.mailbox.cancelled.store(true, Ordering::Relaxed);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl Outbox {
    /// Whether nobody wants to hear more.
    pub fn is_cancelled(&self) -> bool {
        self.mailbox.cancelled.load(Ordering::Relaxed)
    }

    /// Sends an event that others follow.
    pub fn send(&self, event: Event) {
        if !self.is_cancelled() {
            hold(&self.mailbox.mail).events.push_back(event);
            self.mailbox.news.notify_all();
        }
    }

    /// Sends the last event.
    pub fn finish(self, event: Event) {
        self.close(event);
    }

    fn close(&self, event: Event) {
        let mut mail = hold(&self.mailbox.mail);
        if !mail.over {
            mail.over = true;
            mail.events.push_back(event);
            self.mailbox.news.notify_all();
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        if !hold(&self.mailbox.mail).over {
            self.close(Event::Failed(String::from("the engine has ended")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn events_come_in_order_and_end_once() {
        let (outbox, ticket) = pair(7);
        assert_eq!((ticket.serial(), ticket.next(NOW)), (7, None));
        let progress = |done| Event::Progress { done, total: 9 };
        outbox.send(progress(1));
        outbox.send(progress(2));
        outbox.finish(Event::Failed(String::from("x")));
        assert_eq!(ticket.next(NOW), Some(progress(1)));
        assert_eq!(ticket.next(NOW), Some(progress(2)));
        assert_eq!(ticket.next(NOW), Some(Event::Failed(String::from("x"))));
        // It does not wait for what cannot come.
        let start = Instant::now();
        assert_eq!(ticket.next(Duration::from_secs(60)), None);
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_client_that_left_gets_nothing_more_but_the_end() {
        let (outbox, ticket) = pair(1);
        ticket.cancel();
        assert!(outbox.is_cancelled());
        outbox.send(Event::Progress { done: 1, total: 2 });
        drop(outbox);
        let Some(Event::Failed(line)) = ticket.next(NOW) else { panic!() };
        assert!(line.contains("ended"));
        let (outbox, ticket) = pair(2);
        drop(ticket);
        assert!(outbox.is_cancelled());
    }

    #[test]
    fn an_event_wakes_its_client() {
        let (outbox, ticket) = pair(1);
        let thread = std::thread::spawn(move || ticket.next(Duration::from_secs(60)));
        outbox.finish(Event::Failed(String::new()));
        assert!(thread.join().unwrap().is_some());
    }
}
