"""The official OpenAI client, unmodified, against a running `kinglet serve`."""

import asyncio
import json
import math

import openai
from checks import CAPITAL, PNG, WEATHER, equal, holds, refused, run, server, status, wait_until_idle
from pydantic import BaseModel

URL, KEY = server()
CLIENT = openai.OpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0, timeout=60)
MODEL = CLIENT.models.list().data[0].id
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city now.",
            "parameters": WEATHER,
        },
    },
    {
        "type": "function",
        "function": {"name": "get_time", "description": "The time of day.", "parameters": {"type": "object"}},
    },
]


def says(text):
    """A message of the user."""
    return {"role": "user", "content": text}


def chat(text, **more):
    """A greedy chat of one message, unless more is said."""
    fields = {"model": MODEL, "messages": [says(text)], "temperature": 0, "max_tokens": 16}
    return CLIENT.chat.completions.create(**(fields | more))


def check_models():
    """models.list and models.retrieve"""
    models = CLIENT.models.list().data
    equal(len(models), 1)
    assert models[0].object == "model" and models[0].created > 1_600_000_000, models[0]
    equal(CLIENT.models.retrieve(MODEL).id, MODEL)
    refused(openai.NotFoundError, lambda: CLIENT.models.retrieve("no-such-model"), "no-such-model")


def check_chat():
    """a chat, whole"""
    reply = chat(CAPITAL)
    choice = reply.choices[0]
    holds(choice.message.content, "Paris")
    equal((reply.object, reply.model, choice.message.role), ("chat.completion", MODEL, "assistant"))
    equal((choice.finish_reason, choice.index, choice.message.tool_calls), ("stop", 0, None))
    usage = reply.usage
    assert usage.prompt_tokens > 10 and 1 <= usage.completion_tokens <= 16, usage
    equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
    short = chat("Count from one to twenty.", max_completion_tokens=3)
    equal((short.choices[0].finish_reason, short.usage.completion_tokens), ("length", 3))


def check_stream():
    """the same chat as a stream, with its usage"""
    whole = chat(CAPITAL)
    chunks = list(chat(CAPITAL, stream=True, stream_options={"include_usage": True}))
    *pieces, last = chunks
    text = "".join(chunk.choices[0].delta.content or "" for chunk in pieces)
    equal(text, whole.choices[0].message.content)
    equal(pieces[0].choices[0].delta.role, "assistant")
    reasons = [chunk.choices[0].finish_reason for chunk in pieces]
    equal(reasons, [None] * (len(pieces) - 1) + ["stop"])
    equal((last.choices, last.usage.total_tokens), ([], whole.usage.total_tokens))
    assert all(chunk.usage is None for chunk in pieces), pieces
    equal({(chunk.id, chunk.object) for chunk in chunks}, {(last.id, "chat.completion.chunk")})
    # Usage comes to those who ask for it.
    assert all(chunk.choices and chunk.usage is None for chunk in chat(CAPITAL, stream=True))


def check_stream_helper():
    """the client's own helper for streams, with its events"""
    whole = chat(CAPITAL)
    messages = [says(CAPITAL)]
    with CLIENT.chat.completions.stream(
        model=MODEL, messages=messages, temperature=0, max_tokens=16
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= set(kinds), kinds
    equal(final.choices[0].message.content, whole.choices[0].message.content)


def check_several_and_seeds():
    """n=2, and the same seed says the same"""

    def texts(**more):
        reply = chat("Invent a name for a cat.", temperature=1.5, max_tokens=10, **more)
        equal([choice.index for choice in reply.choices], list(range(len(reply.choices))))
        return [choice.message.content for choice in reply.choices]

    two = texts(n=2, seed=7)
    equal(len(two), 2)
    assert two[0] != two[1], two
    equal(texts(n=2, seed=7), two)
    equal(texts(seed=7), two[:1])
    assert texts(seed=8) != two[:1], two
    chunks = list(chat("Invent a name for a cat.", temperature=1.5, max_tokens=10, n=2, seed=7, stream=True))
    for i in range(2):
        parts = [c.choices[0].delta.content or "" for c in chunks if c.choices[0].index == i]
        equal("".join(parts), two[i])


def check_logprobs():
    """probabilities of tokens"""
    reply = chat(CAPITAL, logprobs=True, top_logprobs=3)
    told = reply.choices[0].logprobs.content
    equal("".join(one.token for one in told), reply.choices[0].message.content)
    for one in told:
        equal(len(one.top_logprobs), 3)
        equal((one.token, one.logprob), (one.top_logprobs[0].token, one.top_logprobs[0].logprob))
        equal(bytes(one.bytes).decode(), one.token)
        total = sum(math.exp(top.logprob) for top in one.top_logprobs)
        assert 0 < total <= 1.0001, total
    assert math.exp(told[0].logprob) > 0.5, told[0]
    chunks = chat(CAPITAL, logprobs=True, top_logprobs=3, stream=True)
    parts = [c.choices[0].logprobs.content for c in chunks if c.choices[0].logprobs]
    equal([one for part in parts for one in part or []], told)


def check_completions():
    """prompts that are continued: text, ids, several, streamed, echoed"""

    def ask(prompt, **more):
        fields = {"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 6}
        return CLIENT.completions.create(**(fields | more))

    prompt = "The capital of France is"
    reply = ask(prompt, logprobs=2)
    text = reply.choices[0].text
    holds(text, "Paris")
    equal((reply.object, reply.usage.completion_tokens), ("text_completion", 6))
    told = reply.choices[0].logprobs
    equal("".join(told.tokens), text)
    equal([len(top) for top in told.top_logprobs], [2] * 6)
    both = ask([prompt, "1, 2, 3, 4,"])
    equal(both.choices[0].text, text)
    holds(both.choices[1].text, "5")
    equal("".join(chunk.choices[0].text for chunk in ask(prompt, stream=True)), text)
    equal(ask(prompt, echo=True).choices[0].text, prompt + text)
    equal(ask([785, 6722, 315, 9625, 374]).choices[0].text, text)


def check_tools():
    """tools that must be called, and the turn after it"""
    question = says("What is the weather in Paris, in celsius?")
    more = {"messages": [question], "tools": TOOLS, "max_tokens": 60}
    first = chat("", **more, tool_choice="required", parallel_tool_calls=False).choices[0]
    equal((first.finish_reason, first.message.content), ("tool_calls", None))
    call = first.message.tool_calls[0]
    equal((call.type, call.function.name), ("function", "get_weather"))
    equal(json.loads(call.function.arguments), {"city": "Paris", "unit": "celsius"})

    named = {"type": "function", "function": {"name": "get_weather"}}
    again = chat("", **more, tool_choice=named).choices[0].message.tool_calls
    equal([c.function.name for c in again], ["get_weather"])
    equal(json.loads(again[0].function.arguments)["city"], "Paris")

    result = {"role": "tool", "tool_call_id": call.id, "content": '{"degrees": 17, "sky": "clear"}'}
    turns = [question, first.message, result]
    answer = chat("", messages=turns, tools=TOOLS, max_tokens=40).choices[0]
    equal((answer.finish_reason, answer.message.tool_calls), ("stop", None))
    holds(answer.message.content, "17")

    never = chat("", **(more | {"max_tokens": 20}), tool_choice="none").choices[0].message
    equal(never.tool_calls, None)
    wrong = {"type": "function", "function": {"name": "no_such_tool"}}
    refused(openai.BadRequestError, lambda: chat("", **more, tool_choice=wrong), "tool_choice")


def check_tools_streamed():
    """a call of a tool, streamed: its arguments come in pieces"""
    question = "What is the weather in Paris, in celsius?"
    chunks = list(
        chat(
            question,
            tools=TOOLS,
            tool_choice="required",
            parallel_tool_calls=False,
            max_tokens=60,
            stream=True,
        )
    )
    calls = [c for chunk in chunks for c in chunk.choices[0].delta.tool_calls or []]
    equal((calls[0].index, calls[0].type, calls[0].function.name), (0, "function", "get_weather"))
    assert calls[0].id and all(c.id is None for c in calls[1:]), calls
    assert len(calls) > 3, calls
    text = "".join(c.function.arguments for c in calls)
    equal(json.loads(text), {"city": "Paris", "unit": "celsius"})
    equal(chunks[-1].choices[0].finish_reason, "tool_calls")


class Place(BaseModel):
    """What a reply is to look like."""

    city: str
    country: str
    population_millions: int
    capital: bool


def check_json_schema():
    """response_format json_schema, as the client makes it from a class"""
    fields = {"model": MODEL, "messages": [says("Describe Paris.")], "temperature": 0, "max_tokens": 60}
    reply = CLIENT.chat.completions.parse(**fields, response_format=Place)
    place = reply.choices[0].message.parsed
    equal((place.city, place.country, place.capital), ("Paris", "France", True))
    assert 1 <= place.population_millions, place
    equal(list(json.loads(reply.choices[0].message.content)), list(Place.model_fields))
    # The schema holds against a model that would rather say something else.
    schema = {"type": "object", "properties": {"n": {"enum": [3, 4]}}, "required": ["n"]}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    story = chat("Tell me a story.", response_format=form, max_tokens=30).choices[0].message
    assert json.loads(story.content) in ({"n": 3}, {"n": 4}), story
    schema = {"type": "string", "pattern": "^a+$"}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    error = refused(openai.BadRequestError, lambda: chat("Hi", response_format=form), "pattern")
    equal((error.code, error.param), ("unsupported_schema", "response_format"))


def check_json_object():
    """response_format json_object"""
    text = 'Give me a JSON object with the keys "name" and "age" for Ada, who is 36.'
    reply = chat(text, response_format={"type": "json_object"}, max_tokens=40)
    value = json.loads(reply.choices[0].message.content)
    assert isinstance(value, dict) and "Ada" in value.values() and 36 in value.values(), value
    equal(reply.choices[0].finish_reason, "stop")


def check_stop():
    """stop strings"""
    reply = chat("Write: one, two, three, four, five.", stop=[", four"], max_tokens=24)
    text = reply.choices[0].message.content.lower()
    holds(text, "one, two, three")
    assert "four" not in text, text
    equal(reply.choices[0].finish_reason, "stop")


def check_cached_tokens():
    """a second turn says how much of it was cached"""
    text = "Remember these words: amber, birch, cedar, delta, ember, fjord. Say only: yes."
    first = chat(text)
    turns = [says(text), first.choices[0].message, says("Which word came first?")]
    second = chat("", messages=turns)
    cached = second.usage.prompt_tokens_details.cached_tokens
    # All of the first prompt; what the reply's text becomes as tokens may differ.
    assert first.usage.prompt_tokens <= cached < second.usage.prompt_tokens, (first.usage, second.usage)
    holds(second.choices[0].message.content.lower(), "amber")
    anew = chat("", messages=turns, extra_body={"cache_prompt": False})
    equal(anew.usage.prompt_tokens_details.cached_tokens, 0)
    equal(anew.choices[0].message.content, second.choices[0].message.content)


def check_images_refused():
    """a picture is refused, and why"""
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + PNG}},
    ]
    message = [{"role": "user", "content": parts}]
    error = refused(openai.BadRequestError, lambda: chat("", messages=message), "images", "vision")
    equal((error.code, error.param), ("no_vision_model", "messages[0].content[1].type"))


def check_wrong_fields():
    """wrong types and values are refused by name"""
    for field, value in {
        "temperature": "hot",
        "max_tokens": "many",
        "top_p": 7,
        "n": 1000,
        "messages": "Hello",
        "stop": [5],
        "logit_bias": {"no id": 1},
        "tools": "hammer",
        "response_format": {"type": "xml"},
    }.items():
        error = refused(openai.BadRequestError, lambda: chat("Hi", **{field: value}), field)
        holds(error.param, field)
        equal((error.status_code, error.type), (400, "invalid_request_error"))
    refused(openai.BadRequestError, lambda: chat("", messages=[{"role": "king", "content": ""}]), "role")
    refused(openai.BadRequestError, lambda: chat("", messages=[]), "messages")


def check_too_long():
    """a prompt beyond the context: context_length_exceeded"""
    error = refused(openai.BadRequestError, lambda: chat("word " * 5000), "context")
    equal(error.code, "context_length_exceeded")
    error = refused(openai.BadRequestError, lambda: chat("word " * 5000, stream=True), "context")
    equal(error.code, "context_length_exceeded")


def check_timeout_and_cancel():
    """a client that gives up frees its place"""
    long = {"max_tokens": 1500, "extra_body": {"ignore_eos": True}}
    hasty = CLIENT.with_options(timeout=1.5)
    fields = {"model": MODEL, "messages": [says("Count.")], **long}
    refused(openai.APITimeoutError, lambda: hasty.chat.completions.create(**fields))
    wait_until_idle()
    stream = chat("Count.", stream=True, **long)
    for _ in range(3):
        next(stream)
    equal(status()["active"], 1)
    stream.close()
    wait_until_idle()
    last = status()["last"]
    equal([(one["status"], one["finish"]) for one in last[:2]], [(499, "cancelled")] * 2)


def check_keys():
    """without the right key nothing is answered"""
    wrong = openai.OpenAI(base_url=URL + "/v1", api_key="wrong", max_retries=0)
    error = refused(openai.AuthenticationError, wrong.models.list, "key")
    equal((error.status_code, error.code), (401, "invalid_api_key"))
    hi = {"model": MODEL, "messages": [says("Hi")], "max_tokens": 1}
    refused(openai.AuthenticationError, lambda: wrong.chat.completions.create(**hi))


def check_not_there():
    """what is not there is 404, not something else"""
    refused(openai.NotFoundError, lambda: CLIENT.embeddings.create(model=MODEL, input="Hi"))
    refused(openai.NotFoundError, lambda: CLIENT.responses.create(model=MODEL, input="Hi"))


def check_four_at_once():
    """four at once: each gets what it gets alone"""
    cities = ["France", "Italy", "Japan", "Egypt"]
    texts = [f"What is the capital of {land}? Answer with one word." for land in cities]

    async def ask_all():
        async with openai.AsyncOpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0) as client:
            fields = {"model": MODEL, "temperature": 0, "max_tokens": 8}
            ask = client.chat.completions.create
            return await asyncio.gather(*(ask(messages=[says(text)], **fields) for text in texts))

    together = [reply.choices[0].message.content for reply in asyncio.run(ask_all())]
    for text, capital in zip(together, ["Paris", "Rome", "Tokyo", "Cairo"], strict=True):
        holds(text, capital)
    equal([chat(text, max_tokens=8).choices[0].message.content for text in texts], together)


if __name__ == "__main__":
    run(globals())
