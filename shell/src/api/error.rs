//! What a client is told when something does not work. Must not know requests.

use super::json::Json;
use crate::failure::Failure;

/// The client did not wait for the end; the number is nginx's.
pub const GONE: u16 = 499;

/// Longest message and longest name of a field in characters: parts of them may be the request's own words,
/// and nobody needs all of those back.
const LONGEST: (usize, usize) = (1000, 200);

/// Whose manner errors and replies are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// `{"error": {"message", "type", "param", "code"}}`
    OpenAi,
    /// `{"type": "error", "error": {"type", "message"}}`
    Anthropic,
}

/// A request that is not answered as it wants to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// HTTP's number.
    pub status: u16,
    /// OpenAI's short name of the fault, where there is one.
    pub code: Option<&'static str>,
    /// The field that is wrong.
    pub param: Option<String>,
    /// What is wrong, and what to do.
    pub message: String,
    /// Seconds until it is worth asking again.
    pub retry_after: Option<u64>,
}

impl ApiError {
    /// An error with an HTTP status.
    pub fn new(status: u16, message: impl Into<String>) -> ApiError {
        let mut message = message.into();
        cut(&mut message, LONGEST.0);
        ApiError { status, code: None, param: None, message, retry_after: None }
    }

    /// The field `param` of a request is wrong: 400. The message begins with its name.
    pub fn field(param: &str, what: &str) -> ApiError {
        let mut param = String::from(param);
        cut(&mut param, LONGEST.1);
        let message = [&param, what].join(": ");
        ApiError { param: Some(param), ..ApiError::new(400, message) }
    }

    /// With a short name.
    pub fn coded(self, code: &'static str) -> ApiError {
        ApiError { code: Some(code), ..self }
    }

    /// With a time after which to ask again.
    pub fn later(self, seconds: u64) -> ApiError {
        ApiError { retry_after: Some(seconds), ..self }
    }

    /// What the model or the engine says: 500.
    pub fn inner(failure: Failure) -> ApiError {
        ApiError::new(500, failure.line())
    }

    /// The class of the fault.
    fn kind(&self, manner: Manner) -> &'static str {
        match (self.status, manner) {
            (401, _) => "authentication_error",
            (403, _) => "permission_error",
            (404, _) => "not_found_error",
            (413, Manner::Anthropic) => "request_too_large",
            (429, _) => "rate_limit_error",
            (503, Manner::OpenAi) => "unavailable_error",
            (503, Manner::Anthropic) => "overloaded_error",
            (500.., Manner::OpenAi) => "server_error",
            (500.., Manner::Anthropic) => "api_error",
            _ => "invalid_request_error",
        }
    }

    /// The body of the reply, or the data of the event that ends a stream.
    pub fn body(&self, manner: Manner) -> String {
        let mut json = Json::object();
        if manner == Manner::Anthropic {
            json.put("type", "error");
        }
        json.key("error").open('{').put("message", &self.message).put("type", self.kind(manner));
        if manner == Manner::OpenAi {
            json.put_or_null("param", self.param.as_deref()).put_or_null("code", self.code);
        }
        json.close('}');
        json.end()
    }
}

fn cut(text: &mut String, most: usize) {
    if let Some((at, _)) = text.char_indices().nth(most) {
        text.truncate(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_does_not_get_all_its_words_back() {
        let error = ApiError::field(&"ä".repeat(5000), &"b".repeat(5000));
        assert_eq!(error.param, Some("ä".repeat(200)));
        assert_eq!(error.message, format!("{}: {}", "ä".repeat(200), "b".repeat(798)));
    }

    #[test]
    fn errors_have_the_shape_that_clients_know() {
        let error = ApiError::field("max_tokens", "must be a whole number");
        assert_eq!(error.status, 400);
        assert_eq!(
            error.body(Manner::OpenAi),
            concat!(
                r#"{"error":{"message":"max_tokens: must be a whole number","type":"invalid_request_error","#,
                r#""param":"max_tokens","code":null}}"#
            )
        );
        let error = ApiError::new(503, "loading").coded("loading").later(1);
        assert_eq!(
            error.body(Manner::Anthropic),
            r#"{"type":"error","error":{"message":"loading","type":"overloaded_error"}}"#
        );
        assert!(error.body(Manner::OpenAi).contains(r#""param":null,"code":"loading""#));
    }
}
