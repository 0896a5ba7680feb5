//! The instruction sets that the machine at hand can run.
#![allow(unsafe_code)]

use kinglet_core::Isa;

/// Every instruction set of this CPU, the scalar one first.
pub fn all_isas() -> Vec<Isa> {
    let mut all = vec![Isa::Scalar];
    #[cfg(target_arch = "aarch64")]
    {
        use kinglet_core::ops::isa::{DotProd, Neon};
        all.extend(Neon::new().map(Isa::Neon));
        if std::arch::is_aarch64_feature_detected!("dotprod") {
            // SAFETY: the line above asked the CPU.
            all.push(Isa::DotProd(unsafe { DotProd::assume() }));
        }
    }
    #[cfg(target_arch = "x86_64")]
    {
        use kinglet_core::ops::isa::{Avx2, Avx512};
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
        {
            // SAFETY: the lines above asked the CPU.
            all.push(Isa::Avx2(unsafe { Avx2::assume() }));
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni")
            {
                // SAFETY: these lines and those above asked the CPU.
                all.push(Isa::Avx512(unsafe { Avx512::assume() }));
            }
        }
    }
    all
}

/// Their names, for a test's output.
pub fn names(isas: &[Isa]) -> String {
    isas.iter().map(|isa| isa.name()).collect::<Vec<_>>().join(", ")
}
