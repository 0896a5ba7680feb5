//! Endpoints that need no engine: models, tokens, templates, properties. Must not know HTTP.

use super::anthropic_ask;
use super::ask::Prompt;
use super::chat_ask::conversation;
use super::error::ApiError;
use super::fields::{Fields, as_ids};
use super::json::Json;
use super::served::Served;
use crate::http::date::timestamp;
use serde_json::Value;

/// A model, as OpenAI's and Anthropic's clients know it.
fn write_model(json: &mut Json, served: &Served) {
    let config = served.scheduler.config();
    json.put("id", &served.name).put("object", "model").put_number("created", served.created);
    json.put("owned_by", "kinglet").put("type", "model").put("display_name", &served.name);
    let mut created = String::new();
    timestamp(served.created, &mut created);
    json.put("created_at", &created);
    json.key("meta").open('{').put_number("n_vocab", config.vocab as u64);
    json.put_number("n_ctx", served.scheduler.ctx() as u64)
        .put_number("n_ctx_train", served.train_ctx as u64);
    json.put_number("size", served.bytes as u64).close('}');
}

/// `/v1/models`.
pub fn models(served: &Served) -> String {
    let mut json = Json::object();
    json.put("object", "list").key("data").open('[').open('{');
    write_model(&mut json, served);
    json.close('}').close(']').put_bool("has_more", false);
    json.put("first_id", &served.name).put("last_id", &served.name);
    json.end()
}

/// `/v1/models/NAME`.
///
/// # Errors
/// There is no such model.
pub fn model(served: &Served, name: &str) -> Result<String, ApiError> {
    if name != served.name {
        return Err(no_model(name));
    }
    let mut json = Json::object();
    write_model(&mut json, served);
    Ok(json.end())
}

/// A model of another name was asked for.
pub fn no_model(name: &str) -> ApiError {
    let name: String = name.chars().take(100).collect();
    let message =
        ["the model '", &name, "' is not served here; GET /v1/models names the one that is"].concat();
    ApiError { param: Some(String::from("model")), ..ApiError::new(404, message) }.coded("model_not_found")
}

/// `/props`.
pub fn props(served: &Served, parallel: usize) -> String {
    let mut json = Json::object();
    json.put("model_alias", &served.name).put_number("total_slots", parallel as u64);
    json.key("default_generation_settings").open('{');
    json.put_number("n_ctx", served.scheduler.ctx() as u64).close('}');
    json.key("modalities").open('{').put_bool("vision", false).put_bool("audio", false).close('}');
    json.put("chat_template", &format!("{:?}", served.family));
    json.put("build_info", concat!("kinglet ", env!("CARGO_PKG_VERSION")));
    json.put_number("numerics", u64::from(kinglet_core::NUMERICS_VERSION));
    json.end()
}

/// `/tokenize`.
///
/// # Errors
/// A field that is wrong.
pub fn tokenize(served: &Served, request: &Value) -> Result<String, ApiError> {
    let fields = Fields::of(request)?;
    let text = fields.text("content")?.ok_or_else(|| fields.wrong("content", "is missing"))?;
    let special = fields.switch("parse_special")?.unwrap_or(true);
    let ids = match fields.switch("add_special")? {
        Some(true) if special => served.prompt(&Prompt::Text(String::from(text)))?,
        _ => served.encode(text, special)?,
    };
    let pieces = fields.switch("with_pieces")?.unwrap_or(false);
    let mut json = Json::object();
    json.key("tokens").open('[');
    for id in ids {
        if pieces {
            json.open('{')
                .put_number("id", u64::from(id))
                .put("piece", &served.decode(&[id], false))
                .close('}');
        } else {
            json.number(u64::from(id));
        }
    }
    json.close(']');
    Ok(json.end())
}

/// `/detokenize`.
///
/// # Errors
/// A field that is wrong.
pub fn detokenize(served: &Served, request: &Value) -> Result<String, ApiError> {
    let fields = Fields::of(request)?;
    let list = fields.list("tokens")?.ok_or_else(|| fields.wrong("tokens", "is missing"))?;
    let ids = as_ids(list, served.vocab());
    let ids = ids.ok_or_else(|| fields.wrong("tokens", "holds what is no token id of this model"))?;
    let mut json = Json::object();
    json.put("content", &served.decode(&ids, false));
    Ok(json.end())
}

/// `/apply-template`.
///
/// # Errors
/// A field that is wrong.
pub fn apply_template(served: &Served, request: &Value) -> Result<String, ApiError> {
    let fields = Fields::of(request)?;
    let talk = conversation(&fields, served.family)?;
    let mut json = Json::object();
    json.put("prompt", &talk.prompt(served.family)?);
    Ok(json.end())
}

/// `/v1/messages/count_tokens`.
///
/// # Errors
/// A field that is wrong.
pub fn count_tokens(served: &Served, request: &Value) -> Result<String, ApiError> {
    let ask = anthropic_ask::messages(request, served.family, served.vocab())?;
    let mut count = 0;
    for prompt in &ask.prompts {
        count += served.prompt(prompt)?.len();
    }
    let mut json = Json::object();
    json.put_number("input_tokens", count as u64);
    Ok(json.end())
}
