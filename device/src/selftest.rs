//! Whether a machine computes as the profile says: a few thousand known answers, asked before anything else.
//!
//! A device that contracts a product and a sum, takes subnormal numbers for zero or rounds otherwise is refused, and it
//! is said which, with the first question that it got wrong.

use crate::backend::BackendError;
use crate::machine::{Argument, Launch, Machine};
use std::fmt;

/// Work-items of a group, and the most groups.
const SHAPE: (u32, u32) = (32, 8);

/// An operation of the kernel `answers`, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Add,
    Sub,
    Mul,
    Div,
    Sqrt,
    Fma,
    MulThenAdd,
    MulThenSub,
    Exp,
    Log,
    Tanh,
}

use Operation::{Add, Div, Exp, Fma, Log, Mul, MulThenAdd, MulThenSub, Sqrt, Sub, Tanh};

impl Operation {
    fn number(self) -> u32 {
        self as u32
    }

    /// As a formula of a, b and c.
    fn formula(self) -> &'static str {
        match self {
            Add => "a + b",
            Sub => "a - b",
            Mul => "a * b",
            Div => "a / b",
            Sqrt => "sqrt(a)",
            Fma => "fma(a, b, c)",
            MulThenAdd => "(a * b) + c",
            MulThenSub => "(a * b) - c",
            Exp => "exp(a)",
            Log => "log(a)",
            Tanh => "tanh(a)",
        }
    }

    /// What it gives; of an elementary function, which this processor need not have, no number.
    fn answer(self, [a, b, c]: [f32; 3]) -> f32 {
        match self {
            Add => a + b,
            Sub => a - b,
            Mul => a * b,
            Div => a / b,
            Sqrt => a.sqrt(),
            Fma => a.mul_add(b, c),
            MulThenAdd => a * b + c,
            MulThenSub => a * b - c,
            Exp | Log | Tanh => f32::NAN,
        }
    }
}

/// A question and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Question {
    operation: Operation,
    words: [u32; 3],
    expected: u32,
}

/// The first question that a machine got wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wrong {
    question: Question,
    found: u32,
}

/// Values with something special about them.
const SPECIAL: [u32; 20] = [
    0x0000_0000, // +0
    0x8000_0000, // -0
    0x0000_0001, // the smallest subnormal
    0x8000_0001,
    0x0012_3457, // a subnormal
    0x807f_ffff, // the largest subnormal, negative
    0x0080_0000, // the smallest normal
    0x8080_0001,
    0x1f00_0000, // its square is subnormal
    0x1a35_7913, // its square is zero
    0x3380_0000, // 2^-24: half a unit of 1
    0x3f80_0000, // 1
    0x3f80_0001,
    0xbf7f_ffff,
    0x3fc9_0fdb,
    0xc049_0fdb,
    0x4b80_0001, // an odd number that is the last to be told from its neighbour
    0x5f12_3456,
    0x7f7f_ffff, // the largest
    0xff00_0000,
];

/// Words and their exp, log and tanh (docs/spec/profile.md#known-answers); 0x7fc00000 where it is no number.
const ELEMENTARY: [[u32; 4]; 8] = [
    [0x0000_0000, 0x3f80_0000, 0xff80_0000, 0x0000_0000],
    [0x3f80_0000, 0x402d_f854, 0x0000_0000, 0x3f42_f7d6],
    [0x3dcc_cccd, 0x3f8d_763e, 0xc013_5d8e, 0x3dcc_1eb8],
    [0x4020_0000, 0x4142_eb7f, 0x3f6a_9208, 0x3f7c_92c1],
    [0xc040_0000, 0x3d4b_ed86, 0x7fc0_0000, 0xbf7e_bbe9],
    [0x4248_0000, 0x638c_881f, 0x407a_5e96, 0x3f80_0000],
    [0xc2ae_0000, 0x00b3_3687, 0x7fc0_0000, 0xbf80_0000],
    [0x0000_0001, 0x3f80_0000, 0xc2ce_8ed0, 0x0000_0000],
];

/// All questions. Answers that are no numbers are left out: which NaN it is the profile leaves open.
fn questions() -> Vec<Question> {
    let mut questions = Vec::new();
    let mut ask = |operation: Operation, words: [u32; 3]| {
        let answer = operation.answer(words.map(f32::from_bits));
        if !answer.is_nan() {
            questions.push(Question { operation, words, expected: answer.to_bits() });
        }
    };
    // The profile's own examples of a fused and of a chained product.
    ask(Fma, [0x3980_0001, 0x397f_fffe, 0x3f80_0001]);
    ask(Fma, [0x8000_0001, 0x0000_0001, 0x0000_0000]);
    // xorshift32, so that the questions are the same everywhere.
    let mut word = 0x2545_f491_u32;
    let mut next = || {
        word ^= word << 13;
        word ^= word >> 17;
        word ^= word << 5;
        word
    };
    for _ in 0..256 {
        let words = [next(), next(), next()];
        for operation in [Add, Sub, Mul, Div, Fma, MulThenAdd] {
            ask(operation, words);
        }
        ask(Sqrt, [words[0] & 0x7fff_ffff, 0, 0]);
        // Of one size, so that the last bits of a product matter to the sum.
        let near = words.map(|word| word & 0x807f_ffff | 0x3f80_0000);
        for operation in [Add, Sub, Mul, Div, Fma, MulThenAdd, MulThenSub] {
            ask(operation, near);
        }
    }
    for a in SPECIAL {
        ask(Sqrt, [a & 0x7fff_ffff, 0, 0]);
        for b in SPECIAL {
            for operation in [Add, Sub, Mul, Div] {
                ask(operation, [a, b, 0]);
            }
            let c = SPECIAL[(a ^ b.rotate_left(7)) as usize % SPECIAL.len()];
            for operation in [Fma, MulThenAdd, MulThenSub] {
                ask(operation, [a, b, c]);
            }
        }
    }
    for [word, exp, log, tanh] in ELEMENTARY {
        for (operation, expected) in [(Exp, exp), (Log, log), (Tanh, tanh)] {
            questions.push(Question { operation, words: [word, 0, 0], expected });
        }
    }
    questions
}

fn subnormal(bits: u32) -> bool {
    bits & 0x7f80_0000 == 0 && bits & 0x007f_ffff != 0
}

impl Wrong {
    fn contracted(&self) -> bool {
        let Question { operation, words, .. } = self.question;
        let [a, b, c] = words.map(f32::from_bits);
        let fused = match operation {
            MulThenAdd => a.mul_add(b, c),
            MulThenSub => a.mul_add(b, -c),
            _ => return false,
        };
        fused.to_bits() == self.found
    }

    fn flushed(&self) -> bool {
        let Question { operation, words, expected } = self.question;
        let flush = |bits: u32| if subnormal(bits) { bits & 0x8000_0000 } else { bits };
        let inputs = operation.answer(words.map(|word| f32::from_bits(flush(word)))).to_bits();
        let small = words.iter().any(|word| subnormal(*word)) || subnormal(expected);
        small && [inputs, flush(inputs), flush(expected)].contains(&self.found)
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Question { operation, words: [a, b, c], expected } = self.question;
        let what = match (self.contracted(), self.flushed()) {
            (true, _) => "contracts a product and a sum",
            (false, true) => "takes subnormal numbers for zero",
            (false, false) => "rounds otherwise",
        };
        write!(f, "it {what}: {} of a = {a:08x}", operation.formula())?;
        if !matches!(operation, Sqrt | Exp | Log | Tanh) {
            write!(f, ", b = {b:08x}")?;
        }
        if matches!(operation, Fma | MulThenAdd | MulThenSub) {
            write!(f, ", c = {c:08x}")?;
        }
        write!(f, ": expected {expected:08x}, found {:08x}", self.found)
    }
}

/// Asks a machine everything. An error says what it does wrong, or that it does not answer.
pub fn check(machine: &mut dyn Machine) -> Result<(), BackendError> {
    let questions = questions();
    let found = answers(machine, &questions)?;
    let mut wrong = questions.iter().zip(found).filter(|(question, found)| question.expected != *found);
    match wrong.next() {
        None => Ok(()),
        Some((question, found)) => Err(BackendError(Wrong { question: *question, found }.to_string())),
    }
}

fn answers(machine: &mut dyn Machine, questions: &[Question]) -> Result<Vec<u32>, BackendError> {
    let words = questions
        .iter()
        .flat_map(|Question { operation, words: [a, b, c], .. }| [operation.number(), *a, *b, *c]);
    let words: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    let asked = machine.allocate(words.len() as u64)?;
    machine.write(asked, 0, &words)?;
    let mut bytes = vec![0; 4 * questions.len()];
    let found = machine.allocate(bytes.len() as u64)?;
    let (items, groups) = SHAPE;
    let arguments =
        vec![Argument::Tensor(asked, 0), Argument::Tensor(found, 0), Argument::U32(questions.len() as u32)];
    machine.launch(&Launch { kernel: "answers", groups: [groups, 1], items, arguments })?;
    machine.read(found, 0, &mut bytes)?;
    Ok(bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels;
    use crate::machine::{Buffer, Build};
    use crate::opencl::OpenCl;
    use schemas::receipt::DeviceFacts;
    use sha2::{Digest as _, Sha256};

    fn machine(contracted: bool, source: &str) -> OpenCl {
        OpenCl::with_source(0, Build { recorded: true, contracted, staged: false }, source).expect("OpenCL")
    }

    #[test]
    fn the_known_answers_are_the_same_everywhere() {
        let questions = questions();
        assert!((3000..8000).contains(&questions.len()), "{}", questions.len());
        let words = questions.iter().flat_map(|question| [question.words[0], question.expected]);
        let digest = Sha256::digest(words.flat_map(u32::to_le_bytes).collect::<Vec<_>>());
        let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "fdb8f4cc71f59d18");
    }

    #[test]
    fn a_device_that_computes_as_the_profile_says_passes() {
        check(&mut machine(false, &kernels::source())).unwrap();
    }

    #[test]
    fn a_build_with_contraction_is_refused_and_told_so() {
        let said = check(&mut machine(true, &kernels::source())).unwrap_err().0;
        assert!(said.starts_with("it contracts a product and a sum: (a * b) "), "{said}");
        assert!(said.contains(": expected ") && said.contains(", found "), "{said}");
    }

    #[test]
    fn a_device_that_flushes_or_rounds_otherwise_is_refused_and_told_which() {
        let other = |from: &str, to: &str| {
            let source = kernels::source();
            assert!(source.contains(from), "{from}");
            check(&mut machine(false, &source.replace(from, to))).unwrap_err().0
        };
        let flushes = "found[i] = (bits_of(y) & 0x7f800000u) == 0 ? bits_of(y) & 0x80000000u : bits_of(y);";
        let said = other("found[i] = bits_of(y);", flushes);
        assert!(said.starts_with("it takes subnormal numbers for zero: "), "{said}");
        let said = other("case 3: y = f_div(a, b); break;", "case 3: y = f_mul(a, f_div(1.0f, b)); break;");
        assert!(said.starts_with("it rounds otherwise: a / b of a = "), "{said}");
        let said = other("case 5: y = f_fma(a, b, c); break;", "case 5: y = f_add(f_mul(a, b), c); break;");
        assert!(
            said.starts_with("it rounds otherwise: fma(a, b, c) of a = 39800001, b = 397ffffe"),
            "{said}"
        );
    }

    /// Answers everything as it should, but one question.
    struct Almost {
        asked: Vec<Question>,
        wrong: usize,
    }

    impl Machine for Almost {
        fn facts(&self) -> DeviceFacts {
            unreachable!("the self-test asks for no facts")
        }

        fn allocate(&mut self, _: u64) -> Result<Buffer, BackendError> {
            Ok(Buffer(0))
        }

        fn write(&mut self, _: Buffer, _: u64, _: &[u8]) -> Result<(), BackendError> {
            Ok(())
        }

        fn read(&mut self, _: Buffer, _: u64, bytes: &mut [u8]) -> Result<(), BackendError> {
            for (at, (place, question)) in
                bytes.as_chunks_mut::<4>().0.iter_mut().zip(&self.asked).enumerate()
            {
                *place = (question.expected ^ u32::from(at == self.wrong)).to_le_bytes();
            }
            Ok(())
        }

        fn launch(&mut self, _: &Launch) -> Result<(), BackendError> {
            Ok(())
        }

        fn finish(&mut self) -> Result<(), BackendError> {
            Ok(())
        }
    }

    #[test]
    fn one_bit_wrong_in_any_kind_of_answer_is_refused_and_its_formula_told() {
        let asked = questions();
        let operations = [Add, Sub, Mul, Div, Sqrt, Fma, MulThenAdd, MulThenSub, Exp, Log, Tanh];
        for operation in operations {
            let first = asked.iter().position(|question| question.operation == operation).unwrap();
            let last = asked.iter().rposition(|question| question.operation == operation).unwrap();
            for wrong in [first, last] {
                let said = check(&mut Almost { asked: asked.clone(), wrong }).unwrap_err().0;
                let told = format!(": {} of a = {:08x}", operation.formula(), asked[wrong].words[0]);
                assert!(said.contains(&told), "{operation:?}: {said}");
            }
        }
        assert_eq!(check(&mut Almost { wrong: asked.len(), asked }), Ok(()));
    }
}
