//! What takes the place of a remote's commands in the step `deploy`, and a program that fails.
//! `@FLAGS@` and `@REMOTE@` in a text are folders of the test.

use crate::elf;

/// Logs its words and passes them on to [`super::systemd`]; `restart` fails once if told to.
pub const SYSTEMCTL: &str = r#"#!/bin/sh
echo "$@" >> "@FLAGS@/systemctl.log"
if [ "$1" = restart ] && [ -e "@FLAGS@/fail-restart" ]; then rm "@FLAGS@/fail-restart"; exit 1; fi
echo "$@" > "@FLAGS@/ask"
{ read -r code; /bin/cat; } < "@FLAGS@/answer"
exit "$code"
"#;

/// Loses the end of what it copies while told to.
pub const CAT: &str = r#"#!/bin/sh
if [ -e "@FLAGS@/short-cat" ]; then exec head -c 100000; fi
exec /bin/cat "$@"
"#;

/// Knows of little room while told to.
pub const DF: &str = r#"#!/bin/sh
if [ -e "@FLAGS@/full-disk" ]; then printf 'Heading\ndevice 9 8 1 99%% /\n'; exit; fi
exec /bin/df "$@"
"#;

/// An emulator whose CPU computes wrong logits.
pub const MISCOUNTS: &str = r#"#!/bin/sh
if [ "$2" = --version ]; then exec qemu-aarch64 "$@"; fi
printf '%064d\n' 0
"#;

/// An emulator under which the service ends before it is ready.
pub const DIES: &str = r#"#!/bin/sh
if [ "$2" = serve ]; then echo 'this service dies' >&2; exit 3; fi
exec qemu-aarch64 "$@"
"#;

/// An emulator under which the service comes up, but does not listen where its flags say.
pub const DEAF: &str = r#"#!/bin/sh
if [ "$2" = serve ]; then exec qemu-aarch64 "$@" --port 0; fi
exec qemu-aarch64 "$@"
"#;

/// A static aarch64 program of three instructions, `exit(1)`: header, one segment, code.
pub fn ends_with_1() -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const CODE: [u32; 3] = [0xD280_0020, 0xD280_0BA8, 0xD400_0001]; // mov x0, 1; mov x8, 93; svc 0
    let len = 64 + 56 + 12;
    let mut bytes = vec![0x7F, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let put = |bytes: &mut Vec<u8>, value: u64, width: usize| bytes.extend(&value.to_le_bytes()[..width]);
    for (value, width) in [(2, 2), (u64::from(elf::AARCH64), 2), (1, 4), (BASE + 120, 8), (64, 8), (0, 8)] {
        put(&mut bytes, value, width);
    }
    for (value, width) in [(0, 4), (64, 2), (56, 2), (1, 2), (0, 2), (0, 2), (0, 2)] {
        put(&mut bytes, value, width);
    }
    for (value, width) in [(u64::from(elf::PT_LOAD), 4), (5, 4), (0, 8), (BASE, 8), (BASE, 8), (len, 8)] {
        put(&mut bytes, value, width);
    }
    put(&mut bytes, len, 8);
    put(&mut bytes, 0x1_0000, 8);
    bytes.extend(CODE.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}
