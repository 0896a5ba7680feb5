//! The instruction sets that this CPU can run.
#![allow(unsafe_code)]

use kinglet_core::Isa;

/// All of them, the portable one first.
pub fn all_isas() -> Vec<Isa> {
    #[allow(unused_mut, reason = "other architectures have the portable one only")]
    let mut isas = vec![Isa::Scalar];
    #[cfg(target_arch = "x86_64")]
    {
        use kinglet_core::ops::isa::Avx2;
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
        {
            // SAFETY: just detected.
            isas.push(Isa::Avx2(unsafe { Avx2::assume() }));
        }
    }
    isas
}
