//! Which CPUs there are, what they can run, which are fast, and where threads run. Must not know
//! what they compute.
#![allow(unsafe_code)]

use kinglet_core::Isa;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// CPUs that threads may use, fastest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// CPU numbers.
    pub ids: Vec<usize>,
    /// Whether some are faster than others (big.LITTLE).
    pub uneven: bool,
}

impl Cpus {
    /// The CPUs this process may use, ordered by `cpu_capacity` where the kernel gives it.
    pub fn allowed() -> Cpus {
        let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let ids: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&i| set.is_set(i)).collect();
        Self::ordered(if ids.is_empty() { vec![0] } else { ids }, capacity)
    }

    /// The CPUs of a `--cpus` list, in the order of their speed.
    ///
    /// # Errors
    /// A CPU that this process may not use; its number.
    pub fn chosen(list: &[usize]) -> Result<Cpus, usize> {
        let allowed = Self::allowed();
        match list.iter().find(|id| !allowed.ids.contains(id)) {
            Some(&id) => Err(id),
            None => Ok(Self::ordered(list.to_vec(), capacity)),
        }
    }

    fn ordered(mut ids: Vec<usize>, capacity: impl Fn(usize) -> u32) -> Cpus {
        // Stable: equal CPUs stay in the order given.
        ids.sort_by_key(|&id| core::cmp::Reverse(capacity(id)));
        let uneven = ids.first().map(|&id| capacity(id)) != ids.last().map(|&id| capacity(id));
        Cpus { ids, uneven }
    }
}

/// The kernel's measure of a CPU's speed, 1024 for the fastest; 1024 where it says nothing.
fn capacity(id: usize) -> u32 {
    let path = format!("/sys/devices/system/cpu/cpu{id}/cpu_capacity");
    std::fs::read_to_string(path).ok().and_then(|s| s.trim().parse().ok()).unwrap_or(1024)
}

/// Reads a list such as `0,4-7` into CPU numbers, without repetitions.
///
/// # Errors
/// What is wrong with it.
pub fn parse_list(text: &str) -> Result<Vec<usize>, String> {
    let number = |s: &str| -> Result<usize, String> {
        match s.trim().parse() {
            Ok(n) if n < CpuSet::MAX_CPU => Ok(n),
            _ => Err(format!("'{}' is no CPU number; write for example 4-7 or 0,2", s.escape_debug())),
        }
    };
    let mut ids = Vec::new();
    for part in text.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((a, b)) => (number(a)?, number(b)?),
            None => (number(part)?, number(part)?),
        };
        if first > last {
            return Err(format!("the range {first}-{last} runs backwards"));
        }
        let new: Vec<usize> = (first..=last).filter(|id| !ids.contains(id)).collect();
        ids.extend(new);
    }
    Ok(ids)
}

/// Lets the calling thread run on these CPUs only.
///
/// # Errors
/// The kernel refuses.
pub fn bind(ids: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    ids.iter().for_each(|&id| set.set(id));
    Ok(sched_setaffinity(None, &set)?)
}

/// The kernels that this CPU can run, the fastest first.
pub fn isas() -> Vec<Isa> {
    let mut isas = vec![Isa::Scalar];
    #[cfg(target_arch = "x86_64")]
    {
        use kinglet_core::ops::isa::{Avx2, Avx512};
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
        {
            // SAFETY: the CPU was just asked for each feature of the token.
            isas.insert(0, Isa::Avx2(unsafe { Avx2::assume() }));
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni")
            {
                // SAFETY: the CPU was just asked for each feature of the token.
                isas.insert(0, Isa::Avx512(unsafe { Avx512::assume() }));
            }
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        use kinglet_core::ops::isa::{DotProd, Neon};
        // Every aarch64 CPU that runs Linux programs has NEON; the target says so.
        if let Some(token) = Neon::new() {
            isas.insert(0, Isa::Neon(token));
        }
        // What std's detection ends in, without the names of a hundred other features.
        // SAFETY: it has no preconditions.
        let features = unsafe { libc::getauxval(libc::AT_HWCAP) };
        if features & libc::HWCAP_ASIMDDP != 0 {
            // SAFETY: the kernel says that the CPU has the token's feature.
            isas.insert(0, Isa::DotProd(unsafe { DotProd::assume() }));
        }
    }
    isas
}

/// The fastest kernels that this CPU can run.
pub fn best_isa() -> Isa {
    isas()[0]
}

/// Kernels by name; `auto` are the fastest.
///
/// # Errors
/// What is wrong with the name, or that this CPU cannot run them.
pub fn isa_named(name: &str) -> Result<Isa, String> {
    let (isas, names) = (isas(), KERNELS.join(", "));
    if name == "auto" {
        return Ok(best_isa());
    }
    if let Some(isa) = isas.iter().find(|isa| isa.name() == name) {
        return Ok(*isa);
    }
    if KERNELS.contains(&name) {
        let here: Vec<&str> = isas.iter().map(|isa| isa.name()).collect();
        Err(format!("this CPU cannot run '{name}'; it can run {}", here.join(", ")))
    } else {
        Err(format!("'{}' is none of: auto, {names}", name.escape_debug()))
    }
}

/// All kernels there are for this architecture.
const KERNELS: &[&str] = if cfg!(target_arch = "x86_64") {
    &["scalar", "avx2", "avx512"]
} else if cfg!(target_arch = "aarch64") {
    &["scalar", "neon", "dotprod"]
} else {
    &["scalar"]
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        assert_eq!(parse_list("4-7"), Ok(vec![4, 5, 6, 7]));
        assert_eq!(parse_list("0, 2,1-2"), Ok(vec![0, 2, 1]));
        for bad in ["", "x", "3-", "-3", "5-4", "99999", "1,,2"] {
            assert!(parse_list(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn fast_cpus_come_first() {
        // An RK3588: cores 0-3 are A55, 4-7 A76.
        let rk3588 = |id| if id < 4 { 530 } else { 1024 };
        let cpus = Cpus::ordered((0..8).collect(), rk3588);
        assert_eq!(cpus, Cpus { ids: vec![4, 5, 6, 7, 0, 1, 2, 3], uneven: true });
        assert!(!Cpus::ordered(vec![4, 5], rk3588).uneven);
    }

    #[test]
    fn kernels_are_found_by_name() {
        assert_eq!(isa_named("scalar"), Ok(Isa::Scalar));
        assert_eq!(isa_named("auto"), Ok(isas()[0]));
        assert!(isas().iter().all(|isa| isa_named(isa.name()) == Ok(*isa) && KERNELS.contains(&isa.name())));
        assert!(isa_named("sse9").unwrap_err().contains("none of: auto, scalar"));
        for name in KERNELS.iter().filter(|name| isas().iter().all(|isa| isa.name() != **name)) {
            assert!(isa_named(name).unwrap_err().contains("this CPU cannot run"));
        }
    }

    #[test]
    fn a_thread_is_bound_to_its_cpus_alone() {
        let all = Cpus::allowed().ids;
        let last = *all.last().unwrap();
        let bound = std::thread::spawn(move || bind(&[last]).map(|()| Cpus::allowed().ids));
        assert_eq!(bound.join().unwrap().unwrap(), [last]);
        // The others keep theirs.
        assert_eq!(Cpus::allowed().ids.len(), all.len());
    }

    #[test]
    fn this_process_may_use_a_cpu() {
        let cpus = Cpus::allowed();
        assert!(!cpus.ids.is_empty());
        assert_eq!(Cpus::chosen(&cpus.ids[..1]).map(|c| c.ids), Ok(vec![cpus.ids[0]]));
        assert_eq!(Cpus::chosen(&[CpuSet::MAX_CPU - 1]), Err(CpuSet::MAX_CPU - 1));
    }
}
