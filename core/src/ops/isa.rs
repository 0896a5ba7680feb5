//! Instruction sets of the kernels, and the tokens that prove that the CPU has them.
//!
//! A token is safe to make where the compilation target implies its features; elsewhere making one is
//! `unsafe`, and only the program that asked the CPU does it. No token, no kernel.
#![allow(unsafe_code)]

/// Which kernels compute. All give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Isa {
    /// Portable Rust: the specification.
    #[default]
    Scalar,
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// AVX-512 F, BW, VL and VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    /// NEON without dot product (Cortex-A53, A72).
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
    /// NEON with dot product (Cortex-A55, A76).
    #[cfg(target_arch = "aarch64")]
    DotProd(DotProd),
}

impl Isa {
    /// The name used on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(_) => "avx512",
            #[cfg(target_arch = "aarch64")]
            Isa::Neon(_) => "neon",
            #[cfg(target_arch = "aarch64")]
            Isa::DotProd(_) => "dotprod",
        }
    }

    /// Whose kernels serve where there are no dot products of integers: AVX-512 has none of its own.
    pub(crate) fn without_dot(self) -> Self {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(token) => Isa::Avx2(token.into()),
            other => other,
        }
    }
}

/// Makes a token type: `new` where the target implies the features, `assume` everywhere.
macro_rules! token {
    ($(#[$doc:meta])* $name:ident, $arch:literal, $($feature:literal),+) => {
        $(#[$doc])*
        #[cfg(target_arch = $arch)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(());

        #[cfg(target_arch = $arch)]
        impl $name {
            /// The token, if every CPU of this compilation target has the features.
            pub const fn new() -> Option<Self> {
                if cfg!(all($(target_feature = $feature),+)) { Some($name(())) } else { None }
            }

            /// The token, on the caller's word.
            ///
            /// # Safety
            /// The CPU that this runs on has every feature that the type stands for.
            pub const unsafe fn assume() -> Self {
                $name(())
            }
        }
    };
}

token!(
    /// The CPU has AVX2, FMA and F16C.
    Avx2, "x86_64", "avx2", "fma", "f16c"
);
token!(
    /// The CPU has AVX-512 F, BW, VL and VNNI, and what [`Avx2`] stands for.
    Avx512, "x86_64", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512vnni"
);
#[cfg(target_arch = "x86_64")]
impl From<Avx512> for Avx2 {
    fn from(_: Avx512) -> Avx2 {
        Avx2(())
    }
}

token!(
    /// The CPU has NEON.
    Neon, "aarch64", "neon"
);
token!(
    /// The CPU has NEON and the dot-product instructions.
    DotProd, "aarch64", "neon", "dotprod"
);
