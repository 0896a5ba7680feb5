//! kinglet-core without an operating system: reads a model by semihosting, prints the hash of its
//! logits and the tokens it continues with, for both KV types, the best kernels and the scalar ones.
//!
//! Arguments: `MODEL IDS STEPS`, ids separated by commas; or `write-code` or `overflow` (of the stack),
//! which the CPU must stop. `cargo xtask test --only bare-run` starts it and compares with the host.
#![no_std]
#![no_main]

mod boot;
mod console;
mod cpu;
mod memory;
mod mmu;
mod semihost;

use core::fmt;
use core::panic::PanicInfo;
use kinglet_core::config::Config;
use kinglet_core::gguf::{Gguf, Meta, TensorInfo};
use kinglet_core::par::Single;
use kinglet_core::weights::Layer;
use kinglet_core::{Chunk, Engine, Isa, KvType, Limits, Logits, Memory, Requirements, Weights, sample};
use memory::{Regions, Symbol, linker};

/// Tokens that a run can have, and most of them read at once.
const MAX_TOKENS: usize = 64;
/// Tables of the model file.
const MAX_METAS: usize = 64;
const MAX_TENSORS: usize = 64;
const MAX_LAYERS: usize = 8;
/// Largest vocabulary.
const MAX_VOCAB: usize = 4096;
/// Exit code of everything that is wrong but a fault of the CPU.
const EXIT_FAILURE: u32 = 1;

/// Prints a line.
macro_rules! say {
    ($($arg:tt)*) => { console::print(format_args!("{}\n", format_args!($($arg)*))) };
}

/// Ends the program with a line that says why.
fn fail(why: fmt::Arguments<'_>) -> ! {
    say!("bare: {why}");
    semihost::exit(EXIT_FAILURE)
}

/// Ends the program on an error.
fn must<T, E: fmt::Display>(what: &str, result: Result<T, E>) -> T {
    result.unwrap_or_else(|e| fail(format_args!("{what}: {e}")))
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    fail(format_args!("{info}"))
}

/// What the command line asks for.
struct Task<'t> {
    model: &'t str,
    ids: &'t [u32],
    steps: usize,
}

/// Reads the command line; ends the program on a wrong one and for the faults.
fn task<'t>(line: &'t str, ids: &'t mut [u32; MAX_TOKENS]) -> Task<'t> {
    let mut words = line.split_ascii_whitespace();
    let usage = || -> ! {
        fail(format_args!(
            "arguments are MODEL IDS STEPS ({MAX_TOKENS} tokens in all), write-code or overflow, not {line:?}"
        ))
    };
    let model = words.next().unwrap_or_else(|| usage());
    match model {
        "write-code" => boot::write_to_code(),
        "overflow" => say!("deepest: {}", boot::overflow(0)),
        _ => {
            let (list, steps) = words.next().zip(words.next()).unwrap_or_else(|| usage());
            return parsed(model, list, steps, ids).unwrap_or_else(|| usage());
        }
    }
    fail(format_args!("the fault was not noticed"))
}

/// The arguments as numbers.
fn parsed<'t>(model: &'t str, list: &str, steps: &str, ids: &'t mut [u32; MAX_TOKENS]) -> Option<Task<'t>> {
    let mut count = 0;
    for id in list.split(',') {
        *ids.get_mut(count)? = id.parse().ok()?;
        count += 1;
    }
    let steps = steps.parse().ok().filter(|steps| *steps <= MAX_TOKENS - count)?;
    Some(Task { model, ids: &ids[..count], steps })
}

/// Called by boot code, with MMU and caches on.
pub fn run() -> ! {
    console::start();
    let mmu = if mmu::is_on() { "on" } else { "off" };
    say!("cpu: {} kernels, MMU and caches {mmu}", cpu::best_isa().name());
    let (mut line, mut ids) = ([0; 1024], [0; MAX_TOKENS]);
    let line = semihost::command_line(&mut line)
        .unwrap_or_else(|| fail(format_args!("the emulator gives no command line of 1023 bytes or less")));
    let task = task(line, &mut ids);
    let Some(Regions { model, kv, scratch, index }) = memory::take() else {
        fail(format_args!("the regions are taken"))
    };
    image();

    let file = match semihost::read(task.model, model) {
        Ok(bytes) => bytes,
        Err(e) => fail(format_args!("cannot read {:?}: {e:?}", task.model)),
    };
    let (mut metas, mut tensors) = ([Meta::EMPTY; MAX_METAS], [TensorInfo::EMPTY; MAX_TENSORS]);
    let gguf = must("model", Gguf::parse(file, &mut metas, &mut tensors));
    let config = must("model", Config::from_gguf(&gguf));
    let mut layers = [Layer::EMPTY; MAX_LAYERS];
    let Some(layers) = layers.get_mut(..config.n_layers) else {
        fail(format_args!("{} layers; {MAX_LAYERS} are possible", config.n_layers))
    };
    let weights = must("model", Weights::load(&gguf, &config, layers));
    say!("region model: {} of {} bytes", file.len(), memory::MODEL_BYTES);

    for kv_type in [KvType::Q8, KvType::F32] {
        let limits = Limits {
            max_seq: MAX_TOKENS,
            kv_tokens: MAX_TOKENS,
            max_batch: MAX_TOKENS,
            max_seqs: 1,
            max_logits: 8,
            kv_type,
        };
        let need = must("limits", Requirements::of(&config, &limits));
        for (name, need, has) in [
            ("kv", need.kv, kv.len()),
            ("scratch", need.scratch, scratch.len()),
            ("index", need.index, index.len()),
        ] {
            say!("region {name}: {need} of {has} bytes for KV {}", kv_type.name());
        }
        for isa in [cpu::best_isa(), Isa::Scalar] {
            let memory = Memory { kv: &mut *kv, scratch: &mut *scratch, index: &mut *index };
            let engine = Engine::new(config, weights, limits, memory, isa);
            answer(must("engine", engine), &task, isa);
        }
    }
    say!(
        "stack: {} of {} bytes used",
        memory::stack_used(),
        linker(Symbol::StackEnd) - linker(Symbol::StackStart)
    );
    say!("done");
    semihost::exit(0)
}

/// Bytes of the image: what a board's flash would hold, and what is cleared at the start.
fn image() {
    let between = |from, to| linker(to) - linker(from);
    let (code, data) = (linker(Symbol::CodeBytes), between(Symbol::DataStart, Symbol::DataEnd));
    let zeroed = between(Symbol::BssStart, Symbol::BssEnd);
    say!("image: {} bytes: code and constants {code}, data {data}; {zeroed} zeroed", code + data);
}

/// Prints the hash of all logits of the prompt and the tokens that follow it greedily.
fn answer(mut engine: Engine<'_>, task: &Task<'_>, isa: Isa) {
    let (kv_type, vocab) = (engine.limits().kv_type.name(), engine.config().vocab);
    let mut last = [0.0f32; MAX_VOCAB];
    let Some(last) = last.get_mut(..vocab) else {
        fail(format_args!("a vocabulary of {vocab}; {MAX_VOCAB} is possible"))
    };
    let seq = must("sequence", engine.open());
    let mut hasher = blake3::Hasher::new();
    let prompt = Chunk { seq, tokens: task.ids, logits: Logits::All };
    let done = engine.forward(&Single, &[prompt], &mut |_, logits| {
        for x in logits {
            hasher.update(&x.to_le_bytes());
        }
        last.copy_from_slice(logits);
    });
    must("prompt", done);
    say!("logits {kv_type} {}: {}", isa.name(), hasher.finalize().to_hex());

    let mut ids = [0; MAX_TOKENS];
    for (i, id) in ids[..task.steps].iter_mut().enumerate() {
        *id = must("logits", sample::argmax(last));
        if i + 1 < task.steps {
            let next = Chunk { seq, tokens: core::slice::from_ref(id), logits: Logits::Last };
            must("step", engine.forward(&Single, &[next], &mut |_, logits| last.copy_from_slice(logits)));
        }
    }
    say!("ids {kv_type} {}: {}", isa.name(), List(&ids[..task.steps]));
}

/// Ids with commas between them.
struct List<'l>(&'l [u32]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, id) in self.0.iter().enumerate() {
            write!(f, "{}{id}", if i > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}
