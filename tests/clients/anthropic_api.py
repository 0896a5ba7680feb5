"""The official Anthropic client, unmodified, against a running `kinglet serve`."""

import anthropic
from checks import CAPITAL, PNG, WEATHER, equal, holds, refused, run, server, status, wait_until_idle
from pydantic import BaseModel

URL, KEY = server()
CLIENT = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0, timeout=60)
MODEL = CLIENT.models.list().data[0].id
TOOLS = [
    {"name": "get_weather", "description": "The weather in a city now.", "input_schema": WEATHER},
    {"name": "get_time", "description": "The time of day.", "input_schema": {"type": "object"}},
]
QUESTION = {"role": "user", "content": "What is the weather in Paris, in celsius?"}


def fields(text, **more):
    """A greedy request of one message, unless more is said."""
    messages = [{"role": "user", "content": text}]
    # This client knows no temperature any more; the API does.
    greedy = {"temperature": 0} | more.pop("extra_body", {})
    return {"model": MODEL, "messages": messages, "max_tokens": 16, "extra_body": greedy} | more


def ask(text, **more):
    """What the model says to it."""
    return CLIENT.messages.create(**fields(text, **more))


def check_models():
    """models.list and models.retrieve"""
    models = CLIENT.models.list().data
    equal([model.type for model in models], ["model"])
    assert models[0].display_name and models[0].created_at.year >= 2020, models[0]
    equal(CLIENT.models.retrieve(MODEL).id, MODEL)
    refused(anthropic.NotFoundError, lambda: CLIENT.models.retrieve("no-such-model"), "no-such-model")


def check_create():
    """messages.create"""
    reply = ask(CAPITAL)
    equal((reply.type, reply.role, reply.model), ("message", "assistant", MODEL))
    equal([block.type for block in reply.content], ["text"])
    holds(reply.content[0].text, "Paris")
    equal((reply.stop_reason, reply.stop_sequence), ("end_turn", None))
    assert 1 <= reply.usage.output_tokens <= 16, reply.usage
    short = ask("Count from one to twenty.", max_tokens=3)
    equal((short.stop_reason, short.usage.output_tokens), ("max_tokens", 3))
    cut = ask("Write: one, two, three, four, five.", stop_sequences=[", four"], max_tokens=24)
    equal((cut.stop_reason, cut.stop_sequence), ("stop_sequence", ", four"))
    assert "four" not in cut.content[0].text, cut
    system = ask("Hello.", system=[{"type": "text", "text": "Answer every question with the word BANANA."}])
    holds(system.content[0].text.upper(), "BANANA")


def check_stream():
    """messages.stream, with all its events in their order"""
    whole = ask(CAPITAL)
    with CLIENT.messages.stream(**fields(CAPITAL)) as stream:
        events = list(stream)
        final = stream.get_final_message()
    kinds = [event.type for event in events if event.type != "ping"]
    equal(kinds[:2], ["message_start", "content_block_start"])
    equal(kinds[-3:], ["content_block_stop", "message_delta", "message_stop"])
    equal(set(kinds[2:-3]), {"content_block_delta", "text"})
    equal("".join(event.text for event in events if event.type == "text"), whole.content[0].text)
    equal(events[0].message.content, [])
    equal((final.content[0].text, final.stop_reason), (whole.content[0].text, "end_turn"))
    equal(final.usage.output_tokens, whole.usage.output_tokens)
    raw = list(CLIENT.messages.create(**fields(CAPITAL), stream=True))
    equal(raw[-1].type, "message_stop")
    equal(raw[-2].delta.stop_reason, "end_turn")
    equal(raw[-2].usage.output_tokens, whole.usage.output_tokens)


def check_tools():
    """tools that must be called, and the turn after it"""
    more = {"messages": [QUESTION], "tools": TOOLS, "max_tokens": 60}
    one = {"type": "any", "disable_parallel_tool_use": True}
    first = ask("", **more, tool_choice=one)
    equal(first.stop_reason, "tool_use")
    equal([block.type for block in first.content], ["tool_use"])
    call = first.content[0]
    equal((call.name, call.input), ("get_weather", {"city": "Paris", "unit": "celsius"}))

    named = ask("", **more, tool_choice={"type": "tool", "name": "get_weather"})
    equal([block.name for block in named.content], ["get_weather"])

    result = {"type": "tool_result", "tool_use_id": call.id, "content": '{"degrees": 17, "sky": "clear"}'}
    turns = [QUESTION, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    answer = ask("", messages=turns, tools=TOOLS, max_tokens=40)
    equal((answer.stop_reason, answer.content[0].type), ("end_turn", "text"))
    holds(answer.content[0].text, "17")


def check_tools_streamed():
    """a call of a tool, streamed: its input comes in pieces"""
    one = {"type": "any", "disable_parallel_tool_use": True}
    more = {"messages": [QUESTION], "tools": TOOLS, "tool_choice": one, "max_tokens": 60}
    with CLIENT.messages.stream(**fields("", **more)) as stream:
        events = list(stream)
        final = stream.get_final_message()
    parts = [event.partial_json for event in events if event.type == "input_json"]
    assert len(parts) > 3, parts
    starts = [event.content_block for event in events if event.type == "content_block_start"]
    equal([(block.type, block.name) for block in starts], [("tool_use", "get_weather")])
    equal([block.type for block in final.content], ["tool_use"])
    equal(final.content[0].input, {"city": "Paris", "unit": "celsius"})
    equal(final.stop_reason, "tool_use")


class Place(BaseModel):
    """What a reply is to look like."""

    city: str
    country: str
    capital: bool


def check_output_format():
    """a reply in the form of a class, as the client asks for it"""
    reply = CLIENT.messages.parse(**fields("Describe Paris.", max_tokens=40), output_format=Place)
    place = reply.parsed_output
    equal((place.city, place.country, place.capital), ("Paris", "France", True))
    schema = {"type": "object", "patternProperties": {}}
    form = {"format": {"type": "json_schema", "schema": schema}}
    refused(anthropic.BadRequestError, lambda: ask("Hi", output_config=form), "output_config.format")


def check_counts_and_cache():
    """count_tokens, and what a second turn finds in the cache"""

    def prompt_tokens(usage):
        return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens

    text = "Remember these words: granite, harbor, island, juniper, kettle. Say only: yes."
    system = "You answer in as few words as possible."
    first = ask(text, system=system)
    messages = [{"role": "user", "content": text}]
    counted = CLIENT.messages.count_tokens(model=MODEL, messages=messages, system=system)
    equal(counted.input_tokens, prompt_tokens(first.usage))
    with_tools = CLIENT.messages.count_tokens(model=MODEL, messages=messages, system=system, tools=TOOLS)
    assert with_tools.input_tokens > counted.input_tokens + 50, with_tools
    messages.append({"role": "assistant", "content": first.content})
    messages.append({"role": "user", "content": "Which word came first?"})
    second = ask("", system=system, messages=messages)
    assert second.usage.cache_read_input_tokens >= counted.input_tokens, (counted, second.usage)
    assert second.usage.input_tokens > 0, second.usage
    # The cache changes no reply.
    greedy = {"temperature": 0, "cache_prompt": False}
    anew = ask("", system=system, messages=messages, extra_body=greedy)
    equal(anew.usage.cache_read_input_tokens, 0)
    equal((anew.content[0].text, anew.stop_reason), (second.content[0].text, second.stop_reason))


def check_errors():
    """errors have the classes, types and messages that the client knows"""
    wrong = anthropic.Anthropic(base_url=URL, api_key="wrong", max_retries=0)
    error = refused(anthropic.AuthenticationError, lambda: wrong.messages.create(**fields("Hi")), "key")
    equal(error.body["error"]["type"], "authentication_error")
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    picture = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    refused(anthropic.BadRequestError, lambda: ask("", messages=picture), "images", "vision")
    for field, value in {
        "extra_body": {"temperature": "hot"},
        "max_tokens": "many",
        "stop_sequences": [5],
        "system": 7,
        "tools": [{"name": "a"}],
        "tool_choice": {"type": "perhaps"},
        "messages": [],
    }.items():
        name = next(iter(value)) if field == "extra_body" else field
        error = refused(anthropic.BadRequestError, lambda: ask("Hi", **{field: value}), name)
        equal((error.status_code, error.body["error"]["type"]), (400, "invalid_request_error"))
    refused(anthropic.BadRequestError, lambda: ask("word " * 5000), "context")
    # In a stream, what is wrong is known before it begins.
    refused(anthropic.BadRequestError, lambda: ask("word " * 5000, stream=True), "context")


def check_cancel():
    """a stream that is closed frees its place"""
    stream = ask("Count.", max_tokens=1500, stream=True, extra_body={"ignore_eos": True})
    for event in stream:
        if event.type == "content_block_delta":
            break
    equal(status()["active"], 1)
    stream.close()
    wait_until_idle()


if __name__ == "__main__":
    run(globals())
