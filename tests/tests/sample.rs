//! The sampler against a naive chain, exact probabilities and golden ids.

use kinglet_core::math;
use kinglet_core::sample::{
    LogProb, LogProbs, ParamError, Params, SampleError, Sampler, Scratch, argmax, rng,
};
use std::collections::HashMap;

const NEG_INF: f32 = f32::NEG_INFINITY;

/// A scratch whose region starts at the needed alignment.
struct Memory(Vec<u8>, usize);

impl Memory {
    fn new(vocab: usize) -> Self {
        Memory(vec![0xA5; Scratch::bytes(vocab) + 64], vocab)
    }

    fn scratch(&mut self) -> Scratch<'_> {
        let start = self.0.as_ptr().align_offset(64);
        let bytes = Scratch::bytes(self.1);
        Scratch::new(&mut self.0[start..start + bytes], self.1).unwrap()
    }
}

fn sample(params: &Params<'_>, logits: &[f32], recent: &[u32], draw: u64) -> Result<u32, SampleError> {
    let mut memory = Memory::new(logits.len());
    Sampler::restore(params.seed, draw).sample(params, logits, recent, &mut memory.scratch())
}

/// The documented chain, one list per step, everything sorted.
fn reference(params: &Params<'_>, logits: &[f32], recent: &[u32], draw: u64) -> u32 {
    let mut logits = logits.to_vec();
    for &(id, bias) in params.logit_bias {
        logits[id as usize] += bias;
    }
    let mut counts = HashMap::new();
    for &id in recent.iter().rev().take(params.last_n as usize).filter(|&&id| (id as usize) < logits.len()) {
        *counts.entry(id).or_insert(0u32) += 1;
    }
    for (id, n) in counts {
        let x = &mut logits[id as usize];
        *x = if *x <= 0.0 { *x * params.repetition_penalty } else { *x / params.repetition_penalty };
        *x -= n as f32 * params.frequency_penalty + params.presence_penalty;
    }
    let mut list: Vec<(f32, u32)> = logits.iter().copied().zip(0..).collect();
    // The sort is stable: equals stay in the order of their ids.
    list.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap());
    if params.temperature == 0.0 {
        return list[0].1;
    }
    if params.top_k > 0 {
        list.truncate(params.top_k as usize);
    }
    let max = list[0].0;
    let weights = |list: &[(f32, u32)], temperature: f32| -> Vec<u64> {
        let weight = |x: f32| f64::from(math::exp((x - max) / temperature)) * 2f64.powi(40);
        list.iter().map(|&(x, _)| weight(x).floor() as u64).collect()
    };
    if params.top_p < 1.0 {
        let weights = weights(&list, 1.0);
        let total: u64 = weights.iter().sum();
        let mut sum = 0;
        let enough = |w: &u64| {
            sum += w;
            sum as f64 >= f64::from(params.top_p) * total as f64
        };
        let n = weights.iter().position(enough).unwrap() + 1;
        list.truncate(n);
    }
    list.retain(|&(x, _)| x == max || math::exp(x - max) >= params.min_p);
    let weights = weights(&list, params.temperature);
    let total: u128 = weights.iter().map(|&w| u128::from(w)).sum();
    let target = (total * u128::from(rng::word(params.seed, draw))) >> 64;
    let mut sum = 0;
    let chosen = weights.iter().position(|&w| {
        sum += u128::from(w);
        sum > target
    });
    list[chosen.unwrap()].1
}

/// A small generator of its own for the cases.
struct Cases(u64);

impl Cases {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % below
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.next(from.len() as u64) as usize]
    }

    /// Bell-shaped with ties, some of them banned.
    fn logits(&mut self, len: usize, step: f32) -> Vec<f32> {
        let mut logit = || {
            if self.next(50) == 0 {
                return NEG_INF;
            }
            let sum = (0..4).map(|_| self.next(1000) as f32).sum::<f32>() - 2000.0;
            (sum * 0.01 / step).round() * step
        };
        let mut logits: Vec<f32> = (0..len).map(|_| logit()).collect();
        // At least one is not.
        logits[len / 2] = 1.0;
        logits
    }
}

#[test]
fn every_choice_equals_the_naive_chain() {
    let mut cases = Cases(1);
    for case in 0..6000 {
        let len = cases.pick(&[1, 2, 3, 10, 63, 64, 65, 130, 500, 2000]);
        let step = cases.pick(&[0.001, 0.5, 4.0]);
        let logits = cases.logits(len, step);
        let recent: Vec<u32> =
            (0..cases.next(80)).map(|_| cases.next(len as u64 * 11 / 10 + 1) as u32).collect();
        let biases: Vec<(u32, f32)> = (0..cases.pick(&[0, 0, 1, 5]))
            .map(|_| (cases.next(len as u64) as u32, cases.pick(&[-100.0, -1.5, 0.25, 3.0, NEG_INF])))
            .filter(|&(id, _)| id as usize != len / 2)
            .collect();
        let params = Params {
            temperature: cases.pick(&[0.0, 1e-30, 0.1, 0.8, 1.0, 1.0, 5.0, 1e30]),
            top_k: cases.pick(&[0, 0, 1, 2, 40, 64, 65, 5000, u32::MAX]),
            top_p: cases.pick(&[1.0, 1.0, 0.0, 0.5, 0.9, 0.95, 0.9999, f32::MIN_POSITIVE]),
            min_p: cases.pick(&[0.0, 0.0, 0.05, 0.5, 1.0, 1e-6]),
            repetition_penalty: cases.pick(&[1.0, 1.0, 1.05, 1.5, 0.7]),
            presence_penalty: cases.pick(&[0.0, 0.0, 0.5, -1.0, 2.0]),
            frequency_penalty: cases.pick(&[0.0, 0.0, 0.3, -0.25, 2.0]),
            last_n: cases.pick(&[0, 1, 10, 64, u32::MAX]),
            logit_bias: &biases,
            seed: cases.next(1 << 30),
        };
        let draw = cases.next(1000);
        assert_eq!(
            sample(&params, &logits, &recent, draw),
            Ok(reference(&params, &logits, &recent, draw)),
            "case {case}: {len} logits, draw {draw}, {params:?}"
        );
    }
}

/// Counts of `draws` tokens in a row.
fn histogram(params: &Params<'_>, logits: &[f32], draws: u64) -> Vec<u64> {
    let mut memory = Memory::new(logits.len());
    let mut scratch = memory.scratch();
    let mut sampler = Sampler::new(params.seed);
    let mut counts = vec![0; logits.len()];
    for _ in 0..draws {
        counts[sampler.sample(params, logits, &[], &mut scratch).unwrap() as usize] += 1;
    }
    assert_eq!(sampler.draws(), draws);
    counts
}

fn softmax(logits: &[f32], temperature: f64) -> Vec<f64> {
    let weights: Vec<f64> = logits.iter().map(|&x| (f64::from(x) / temperature).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|w| w / total).collect()
}

fn chi_square(counts: &[u64], probabilities: &[f64]) -> f64 {
    let n: u64 = counts.iter().sum();
    let term = |(&count, &p): (&u64, &f64)| (count as f64 - n as f64 * p).powi(2) / (n as f64 * p);
    counts.iter().zip(probabilities).map(term).sum()
}

#[test]
fn tokens_come_as_often_as_the_softmax_says() {
    let logits: Vec<f32> = (0..24).map(|i| ((i * 7) % 24) as f32 * 0.15 - 1.0).collect();
    for (seed, temperature) in [(1, 1.0), (2, 0.7), (3, 1.6), (u64::MAX, 1.0)] {
        let params = Params { temperature, seed, ..Params::OPEN_AI };
        let counts = histogram(&params, &logits, 120_000);
        let chi = chi_square(&counts, &softmax(&logits, f64::from(temperature)));
        // 23 degrees of freedom: 49.7 is passed by one seed in a thousand.
        assert!(chi < 49.7, "seed {seed}, temperature {temperature}: {chi}");
        let wrong = chi_square(&counts, &softmax(&logits, f64::from(temperature) * 1.05));
        assert!(wrong > 49.7, "the checker itself is blind: {wrong}");
    }
    // Filtered: the same among those that remain.
    let params = Params { temperature: 1.0, top_k: 5, seed: 4, ..Params::OPEN_AI };
    let counts = histogram(&params, &logits, 100_000);
    let mut order: Vec<usize> = (0..24).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    let five: Vec<f32> = order[..5].iter().map(|&i| logits[i]).collect();
    let seen: Vec<u64> = order[..5].iter().map(|&i| counts[i]).collect();
    assert_eq!(seen.iter().sum::<u64>(), 100_000);
    let chi = chi_square(&seen, &softmax(&five, 1.0));
    assert!(chi < 18.5, "{chi}");
}

#[test]
fn a_seed_gives_the_same_ids_on_every_machine() {
    let logits = Cases(99).logits(5000, 0.001);
    let ids = |params: Params<'_>| {
        let mut memory = Memory::new(logits.len());
        let mut scratch = memory.scratch();
        let mut sampler = Sampler::new(params.seed);
        let mut recent = Vec::new();
        for _ in 0..12 {
            recent.push(sampler.sample(&params, &logits, &recent, &mut scratch).unwrap());
        }
        recent
    };
    let bias = [(17, 12.0), (18, 12.5), (4001, NEG_INF)];
    let penalties = Params {
        temperature: 0.6,
        top_k: 20,
        repetition_penalty: 1.1,
        presence_penalty: 0.5,
        frequency_penalty: 0.25,
        logit_bias: &bias,
        seed: 0xDEAD_BEEF_0123_4567,
        ..Params::LLAMA_CPP
    };
    let greedy = Params { temperature: 0.0, presence_penalty: 2.0, last_n: 3, ..Params::LLAMA_CPP };
    let golden: [(Params<'_>, [u32; 12]); 6] = [
        (Params { seed: 42, ..Params::LLAMA_CPP }, GOLDEN[0]),
        (Params { seed: 42, ..Params::OPEN_AI }, GOLDEN[1]),
        (Params { seed: 7, top_p: 0.5, ..Params::OPEN_AI }, GOLDEN[2]),
        (penalties, GOLDEN[3]),
        (greedy, GOLDEN[4]),
        (Params { seed: 1, temperature: 4.0, ..Params::OPEN_AI }, GOLDEN[5]),
    ];
    for (params, expected) in golden {
        assert_eq!(ids(params), expected, "{params:?}");
    }
}

/// Written once by this sampler; a change here is a change of every seeded text.
const GOLDEN: [[u32; 12]; 6] = [
    [2462, 3835, 737, 737, 3835, 1521, 3835, 1272, 737, 2497, 3835, 737],
    [519, 3835, 737, 737, 3835, 3304, 737, 2130, 737, 1521, 737, 2497],
    [737, 3835, 2497, 737, 737, 3835, 737, 3835, 3835, 737, 3835, 2497],
    [1521, 1272, 2497, 737, 519, 3835, 2436, 737, 972, 1696, 4141, 2462],
    [3835, 737, 2497, 2462, 3835, 737, 2497, 2462, 3835, 737, 2497, 2462],
    [259, 993, 4390, 4733, 4733, 4295, 2650, 2695, 1182, 1408, 1356, 2286],
];

#[test]
fn a_restored_sampler_goes_on() {
    let logits = Cases(5).logits(300, 0.01);
    let mut memory = Memory::new(300);
    let mut scratch = memory.scratch();
    let params = Params { seed: 11, ..Params::OPEN_AI };
    let mut sampler = Sampler::new(params.seed);
    let mut next = |sampler: &mut Sampler| sampler.sample(&params, &logits, &[], &mut scratch).unwrap();
    let first: Vec<u32> = (0..10).map(|_| next(&mut sampler)).collect();
    let mut copy = Sampler::restore(sampler.seed(), sampler.draws());
    assert_eq!(copy, sampler);
    let rest: Vec<u32> = (0..10).map(|_| next(&mut sampler)).collect();
    assert_eq!((0..10).map(|_| next(&mut copy)).collect::<Vec<_>>(), rest);
    assert_ne!(first, rest);
}

#[test]
fn ties_go_to_the_smallest_id() {
    let greedy = Params::GREEDY;
    assert_eq!(sample(&greedy, &[1.0, 3.0, 3.0, 2.0], &[], 0), Ok(1));
    assert_eq!(sample(&greedy, &[-0.0, 0.0, 0.0], &[], 0), Ok(0));
    assert_eq!(sample(&greedy, &[0.0, -0.0], &[], 0), Ok(0));
    // The same by way of keys.
    let biased = Params { logit_bias: &[(2, 1.0)], ..greedy };
    assert_eq!(sample(&biased, &[-0.0, 0.0, -1.0], &[], 0), Ok(0));
    assert_eq!(sample(&biased, &[-2.0, 0.0, -1.0], &[], 0), Ok(1));
    let equal = [0.5; 1000];
    for draw in 0..50 {
        let one = Params { top_k: 1, temperature: 2.0, ..Params::OPEN_AI };
        assert_eq!(sample(&one, &equal, &[], draw), Ok(0));
        let three = Params { top_k: 3, ..one };
        assert!(sample(&three, &equal, &[], draw).unwrap() < 3);
        // 0.25 of 1000 equals.
        let quarter = Params { top_p: 0.25, ..Params::OPEN_AI };
        assert!(sample(&quarter, &equal, &[], draw).unwrap() < 250);
    }
    let all = histogram(&Params { seed: 3, ..Params::OPEN_AI }, &equal, 10_000);
    assert!(chi_square(&all, &[0.001; 1000]) < 1142.9, "999 degrees of freedom, one in a thousand");
}

#[test]
fn edges_of_temperature_and_filters() {
    let logits = [0.0, 2.0, 1.0, f32::MAX, f32::MIN];
    for draw in 0..200 {
        for (params, expected) in [
            (Params { temperature: f32::MIN_POSITIVE, ..Params::OPEN_AI }, 3),
            (Params { temperature: 1e-45, ..Params::OPEN_AI }, 3),
            (Params { top_p: 0.0, temperature: f32::MAX, ..Params::OPEN_AI }, 3),
            (Params { min_p: 1.0, temperature: f32::MAX, ..Params::OPEN_AI }, 3),
        ] {
            assert_eq!(sample(&params, &logits, &[], draw), Ok(expected), "{params:?}");
        }
        assert_eq!(sample(&Params::LLAMA_CPP, &[-7.0], &[0, 0], draw), Ok(0));
    }
    let hot = histogram(&Params { temperature: f32::MAX, seed: 2, ..Params::OPEN_AI }, &logits[..3], 9000);
    assert!(chi_square(&hot, &[1.0 / 3.0; 3]) < 13.8, "{hot:?}");
    // Both neighbours of min_p = 0.5.
    let near = [0.0, -0.693, -0.694];
    let params = Params { min_p: 0.5, seed: 5, ..Params::OPEN_AI };
    let counts = histogram(&params, &near, 1000);
    assert!(counts[1] > 200 && counts[2] == 0, "{counts:?}");
}

#[test]
fn bias_bans_and_forces() {
    let logits = Cases(3).logits(100, 0.01);
    let best = argmax(&logits).unwrap();
    let ban = [(best, NEG_INF)];
    let second = sample(&Params { logit_bias: &ban, ..Params::GREEDY }, &logits, &[], 0).unwrap();
    assert_ne!(second, best);
    let counts = histogram(&Params { logit_bias: &ban, temperature: 3.0, ..Params::OPEN_AI }, &logits, 5000);
    assert_eq!(counts[best as usize], 0);
    for (id, &logit) in logits.iter().enumerate() {
        assert!(logit > NEG_INF || counts[id] == 0);
    }
    let force = [(7, 60.0), (7, 40.0)];
    for draw in 0..100 {
        let params = Params { logit_bias: &force, ..Params::LLAMA_CPP };
        assert_eq!(sample(&params, &logits, &[], draw), Ok(7));
    }
    // A ban outlasts penalties of either sign.
    let params =
        Params { logit_bias: &ban, repetition_penalty: 0.5, presence_penalty: -2.0, ..Params::GREEDY };
    assert_ne!(sample(&params, &logits, &[best; 10], 0), Ok(best));
}

#[test]
fn penalties_see_the_window_only_and_leave_no_trace() {
    let logits = [5.0, 4.9, 4.85, -1.0];
    let mut memory = Memory::new(4);
    let mut scratch = memory.scratch();
    let mut sampler = Sampler::new(0);
    let params = Params { frequency_penalty: 0.2, last_n: 3, ..Params::GREEDY };
    let mut next = |recent: &[u32]| sampler.sample(&params, &logits, recent, &mut scratch);
    for _ in 0..3 {
        assert_eq!(next(&[]), Ok(0));
        assert_eq!(next(&[0]), Ok(1));
        assert_eq!(next(&[0, 1]), Ok(2));
        assert_eq!(next(&[0, 0, 1]), Ok(2));
        assert_eq!(next(&[0, 0, 1, 3, 3]), Ok(0));
        assert_eq!(next(&[4, 5, u32::MAX]), Ok(0));
    }
    assert_eq!(sampler.draws(), 0, "greedy draws nothing");
    // An error half-way leaves none either: 3e38 / 0.1 is too much, and both ids were counted.
    let params = Params { repetition_penalty: 0.1, ..params };
    let result = sampler.sample(&params, &[3e38, 1.0, 2.0, 0.0], &[0, 1, 1], &mut scratch);
    assert_eq!(result, Err(SampleError::NonFinite { id: 0 }));
    let params = Params { frequency_penalty: 0.9, ..Params::GREEDY };
    assert_eq!(sampler.sample(&params, &[0.0, 1.0, 0.0, 0.0], &[1], &mut scratch), Ok(1));
    // A smaller vocabulary in the same scratch: ids between the two leave nothing behind.
    let params = Params { frequency_penalty: 1.0, ..Params::GREEDY };
    assert_eq!(sampler.sample(&params, &[0.0, 1.0], &[3, 3, 3], &mut scratch), Ok(1));
    assert_eq!(sampler.sample(&params, &[0.0, 0.0, 0.0, 2.0], &[3], &mut scratch), Ok(3));
}

#[test]
fn bad_input_is_an_error_and_draws_nothing() {
    let nan = [0.0, f32::NAN, 1.0];
    let infinite = [0.0, 1.0, f32::INFINITY];
    let banned = [NEG_INF; 3];
    let mut memory = Memory::new(3);
    let mut scratch = memory.scratch();
    let mut sampler = Sampler::new(1);
    for base in [Params::LLAMA_CPP, Params::OPEN_AI, Params::GREEDY] {
        for logit_bias in [&[][..], &[(0, 1.0)]] {
            let params = Params { logit_bias, ..base };
            let mut check = |logits: &[f32], error: SampleError| {
                assert_eq!(sampler.sample(&params, logits, &[], &mut scratch), Err(error), "{params:?}");
            };
            check(&nan, SampleError::NonFinite { id: 1 });
            check(&infinite, SampleError::NonFinite { id: 2 });
            check(&banned, SampleError::AllBanned);
            check(&[], SampleError::Vocabulary { len: 0 });
        }
        let params = Params { logit_bias: &[(3, 1.0)], ..base };
        let result = sampler.sample(&params, &[0.0; 3], &[], &mut scratch);
        assert_eq!(result, Err(SampleError::UnknownBias { id: 3 }));
        let params = Params { logit_bias: &[(1, 3e38), (1, 3e38)], ..base };
        let result = sampler.sample(&params, &[0.0; 3], &[], &mut scratch);
        assert_eq!(result, Err(SampleError::NonFinite { id: 1 }));
    }
    let result = sampler.sample(&Params::LLAMA_CPP, &[0.0; 4], &[], &mut scratch);
    assert_eq!(result, Err(SampleError::ScratchTooSmall { needed: 4, got: 3 }));
    assert_eq!(sampler.draws(), 0);
    assert_eq!(LogProbs::new(&nan), Err(SampleError::NonFinite { id: 1 }));
    assert_eq!(LogProbs::new(&banned), Err(SampleError::AllBanned));
}

#[test]
fn parameters_out_of_range_are_named() {
    let base = Params::LLAMA_CPP;
    let nan_bias = [(0, 0.0), (1, f32::NAN)];
    let infinite_bias = [(0, f32::INFINITY)];
    for (params, error, field) in [
        (Params { temperature: -0.1, ..base }, ParamError::Temperature, "temperature"),
        (Params { temperature: f32::NAN, ..base }, ParamError::Temperature, "temperature"),
        (Params { temperature: f32::INFINITY, ..base }, ParamError::Temperature, "temperature"),
        (Params { top_p: 1.01, ..base }, ParamError::TopP, "top_p"),
        (Params { top_p: -0.01, ..base }, ParamError::TopP, "top_p"),
        (Params { min_p: f32::NAN, ..base }, ParamError::MinP, "min_p"),
        (Params { repetition_penalty: 0.0, ..base }, ParamError::RepetitionPenalty, "repetition_penalty"),
        (Params { presence_penalty: 2.1, ..base }, ParamError::PresencePenalty, "presence_penalty"),
        (Params { frequency_penalty: -2.1, ..base }, ParamError::FrequencyPenalty, "frequency_penalty"),
        (Params { logit_bias: &nan_bias, ..base }, ParamError::LogitBias, "logit_bias"),
        (Params { logit_bias: &infinite_bias, ..base }, ParamError::LogitBias, "logit_bias"),
    ] {
        assert_eq!(params.validate(), Err(error));
        assert_eq!(error.field(), field);
        assert!(error.to_string().starts_with(field));
        assert_eq!(sample(&params, &[0.0, 1.0], &[], 0), Err(SampleError::Params(error)));
    }
    for good in [Params::LLAMA_CPP, Params::OPEN_AI, Params::GREEDY, Params::default()] {
        assert_eq!(good.validate(), Ok(()));
    }
}

#[test]
fn log_probabilities_are_those_of_the_softmax() {
    let logits = Cases(8).logits(3000, 0.01);
    let log_probs = LogProbs::new(&logits).unwrap();
    let exact = softmax(&logits, 1.0);
    for (&logit, p) in logits.iter().zip(&exact) {
        let ours = log_probs.of(logit);
        assert!(ours == NEG_INF && *p == 0.0 || (f64::from(ours) - p.ln()).abs() < 3e-6, "{ours} {}", p.ln());
    }
    let mut order: Vec<u32> = (0..3000).collect();
    order.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]));
    for n in [0, 1, 5, 20] {
        let mut top = vec![LogProb::default(); n];
        assert_eq!(log_probs.top(&logits, &mut top), n);
        for (entry, &id) in top.iter().zip(&order) {
            assert_eq!(*entry, LogProb { id, logprob: log_probs.of(logits[id as usize]) });
        }
    }
    let mut top = [LogProb::default(); 5];
    assert_eq!(LogProbs::new(&[0.0; 3]).unwrap().top(&[0.0; 3], &mut top), 3);
    assert_eq!(top[2].id, 2);
    assert_eq!(top[0].logprob.to_bits(), (-(3f64.ln()) as f32).to_bits());
}

#[test]
fn a_scratch_takes_exactly_what_it_says() {
    let mut memory = [0u8; 4096];
    let start = memory.as_ptr().align_offset(64);
    let bytes = Scratch::bytes(100);
    assert!(Scratch::new(&mut memory[start..start + bytes], 100).is_ok());
    assert!(Scratch::new(&mut memory[start..start + bytes - 1], 100).is_err());
}
