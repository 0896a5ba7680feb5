//! The lists the rules are checked against: the only part of tidy that changes often.

/// Files that may contain `unsafe`. A file leaves the list when its last `unsafe` goes.
pub const UNSAFE_ALLOWED: &[&str] = &[
    "core/src/cast.rs",
    "core/src/fused.rs",
    "core/src/kernels/avx2/inner.rs",
    "core/src/kernels/avx2/mod.rs",
    "core/src/kernels/avx2/vec.rs",
    "core/src/kernels/avx512/mod.rs",
    "core/src/kernels/avx512/vec.rs",
    "core/src/kernels/neon/dot.rs",
    "core/src/kernels/neon/vec.rs",
    "core/src/kernels/neon/walk.rs",
    "core/src/ops/isa.rs",
    "core/src/par.rs",
    "shell/src/cpus.rs",
    "shell/src/map.rs",
    "shell/src/pool.rs",
    "shell/src/signal.rs",
    "shell/src/thread.rs",
    "shell/src/trace/frames.rs",
    "shell/tests/allocations.rs",
    "tests/bare/src/boot.rs",
    "tests/bare/src/console.rs",
    "tests/bare/src/cpu.rs",
    "tests/bare/src/memory.rs",
    "tests/bare/src/mmu.rs",
    "tests/bare/src/semihost.rs",
    "tests/src/isas.rs",
];

/// Crates that kinglet-core may depend on: no std, no alloc, small.
pub const CORE_DEPENDENCIES: &[&str] = &["libm", "heapless", "embedded-io", "defmt", "blake3", "xxhash-rust"];

/// Lines from which a file should be split, and above which it must be.
pub const LINES_WARN: usize = 500;
/// See [`LINES_WARN`].
pub const LINES_MOST: usize = 800;

/// Longest line of a source file, in characters; rustfmt does not break strings and comments.
pub const COLUMNS_MOST: usize = 110;

/// Largest sum of the fixtures' sizes: everybody who clones the project pays for it.
pub const FIXTURE_BYTES_MOST: u64 = 25 << 20;

/// Macros that must not be left in.
pub const MACROS_FORBIDDEN: &[&str] = &["todo", "unimplemented", "dbg"];

/// Marks of unfinished work, as whole words in code or comments.
pub const MARKS_FORBIDDEN: &[&str] = &["TODO", "FIXME", "XXX"];

/// Hosts of package registries: mirrors differ, so no file may name one.
/// In two parts each, so that this file does not name them either.
pub const HOSTS: &[&str] = &[
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("crates", ".io"),
    concat!("npmjs", ".org"),
    concat!("static.rust-lang", ".org"),
    concat!("proxy.golang", ".org"),
    concat!("rubygems", ".org"),
    concat!("deb.debian", ".org"),
    concat!("docker", ".io"),
];

/// Beginnings of absolute paths that exist on one machine only.
pub const PATHS: &[&str] = &[
    concat!("/", "home/"),
    concat!("/", "root/"),
    concat!("/", "tmp/"),
    concat!("/", "work/"),
    concat!("/", "Users/"),
];
