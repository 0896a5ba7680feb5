//! The parts of the APIs together, as far as they need no engine. Must not know sockets.

use super::chat_reply::ChatStream;
use super::client::{Events, Gone};
use super::message_reply::MessageStream;
use super::outcome::{Finish, Listener, Usage, Whole};
use super::text_reply::TextStream;
use super::*;
