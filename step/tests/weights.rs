//! Weights as other programs write them: what is taken, and what is refused by name.

mod runs;

use runs::{SMALL, first_state, llama_toml, run, run_of};
use schemas::plan::{Parameter, Plan};
use step::weights::{self, WrongWeights};

/// A tensor of a file: name, dtype, shape, bytes.
type Tensor = (String, &'static str, Vec<u64>, Vec<u8>);

fn file(tensors: &[Tensor]) -> Vec<u8> {
    file_with(tensors, |_| ())
}

/// A file whose header's entries are changed before it is written.
fn file_with(tensors: &[Tensor], change: impl FnOnce(&mut Vec<String>)) -> Vec<u8> {
    let mut at = 0;
    let mut entries: Vec<String> = tensors
        .iter()
        .map(|(name, dtype, shape, bytes)| {
            let end = at + bytes.len();
            let entry =
                format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{at},{end}]}}"#);
            at = end;
            entry
        })
        .collect();
    change(&mut entries);
    let header = format!(r#"{{"__metadata__":{{"format":"pt","by":"another"}},{}}}"#, entries.join(","));
    let body = tensors.iter().flat_map(|(.., bytes)| bytes).copied();
    (header.len() as u64).to_le_bytes().into_iter().chain(header.bytes()).chain(body).collect()
}

/// The run's first parameters as a file's tensors, in f32.
fn tensors(plan: &Plan, flat: &[f32]) -> Vec<Tensor> {
    let mut rest = flat;
    let one = |Parameter { name, shape, .. }: &Parameter| {
        let (words, more) = rest.split_at(shape.iter().product::<u64>() as usize);
        rest = more;
        (name.clone(), "F32", shape.clone(), words.iter().flat_map(|word| word.to_le_bytes()).collect())
    };
    plan.parameters.iter().map(one).collect()
}

fn read(plan: &Plan, bytes: &[u8]) -> Result<Vec<f32>, WrongWeights> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    std::fs::write(&path, bytes).unwrap();
    weights::read(&path, &plan.parameters).map_err(|error| error.source)
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn what_is_written_is_read_and_names_may_lack_the_prefix_and_stand_in_any_order() {
    let (plan, _) = run(SMALL);
    let flat = first_state(&plan).parameters;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    weights::write(&path, &plan.parameters, &flat).unwrap();
    assert_eq!(bits(&weights::read(&path, &plan.parameters).unwrap()), bits(&flat));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no part is left");

    let mut bare = tensors(&plan, &flat);
    bare.iter_mut().for_each(|tensor| tensor.0 = tensor.0.trim_start_matches("transformer.").to_owned());
    bare.reverse();
    // As the first GPT-2 files have them: masks of another dtype, and a scalar of one element.
    bare.push(("h.0.attn.bias".into(), "U8", vec![1, 1, 2, 2], vec![1; 4]));
    bare.push(("h.1.attn.masked_bias".into(), "F32", vec![], (-1e4_f32).to_le_bytes().to_vec()));
    assert_eq!(bits(&read(&plan, &file(&bare)).unwrap()), bits(&flat));
}

#[test]
fn sixteen_bits_are_widened_exactly() {
    let (plan, _) = run(SMALL);
    // Values of few bits are values of all three types.
    let flat: Vec<f32> =
        (0..first_state(&plan).parameters.len()).map(|i| (i % 255) as f32 / 64.0 - 2.0).collect();
    let bf16 = |value: f32| ((value.to_bits() >> 16) as u16).to_le_bytes();
    let f16 = |value: f32| {
        let bits = value.to_bits();
        let exponent = (bits >> 23 & 255) as i32 - 112;
        let half = if value == 0.0 { 0 } else { (exponent as u32) << 10 | bits >> 13 & 1023 };
        ((half | bits >> 31 << 15) as u16).to_le_bytes()
    };
    let narrow = |dtype: &'static str, to: &dyn Fn(f32) -> [u8; 2]| {
        let mut all = tensors(&plan, &flat);
        for tensor in &mut all {
            let words = tensor.3.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word));
            (tensor.1, tensor.3) = (dtype, words.flat_map(to).collect());
        }
        read(&plan, &file(&all)).unwrap()
    };
    assert_eq!(bits(&narrow("BF16", &bf16)), bits(&flat));
    assert_eq!(bits(&narrow("F16", &f16)), bits(&flat));
}

#[test]
fn an_output_table_beside_tied_weights_must_be_the_token_table() {
    let (plan, _) = run(SMALL);
    let flat = first_state(&plan).parameters;
    let mut all = tensors(&plan, &flat);
    let (_, dtype, shape, bytes) = all[0].clone();
    all.push(("lm_head.weight".into(), dtype, shape, bytes));
    assert_eq!(bits(&read(&plan, &file(&all)).unwrap()), bits(&flat));
    all.last_mut().unwrap().3[0] ^= 1;
    let wrong = read(&plan, &file(&all)).unwrap_err();
    assert!(matches!(&wrong, WrongWeights::Untied { table } if table == "transformer.wte.weight"), "{wrong}");
    // A beginning of it, and nothing of another type.
    all.last_mut().unwrap().3[0] ^= 1;
    all.last_mut().unwrap().2[0] -= 1;
    all.last_mut().unwrap().3.truncate(66 * 36 * 4);
    assert!(matches!(read(&plan, &file(&all)), Err(WrongWeights::Untied { .. })));
    all.last_mut().unwrap().2[0] += 1;
    (all.last_mut().unwrap().1, all.last_mut().unwrap().3) = ("U8", vec![]);
    assert!(matches!(read(&plan, &file(&all)), Err(WrongWeights::Untied { .. })));
}

#[test]
fn a_header_names_its_tensors_in_any_order_and_each_byte_once() {
    let (plan, _) = run(SMALL);
    let flat = first_state(&plan).parameters;
    let good = tensors(&plan, &flat);
    let reversed = file_with(&good, |entries| entries.reverse());
    assert_eq!(bits(&read(&plan, &reversed).unwrap()), bits(&flat));

    let mut twice = good.clone();
    twice.push(good[2].clone());
    let said = read(&plan, &file(&twice)).unwrap_err().to_string();
    assert!(said.starts_with(&format!("expected tensor {:?} once, found it twice", good[2].0)), "{said}");

    // Of a dtype that is not known the length cannot be told, but nothing ends before it begins.
    let end = 4 * flat.len();
    let mut mask = good.clone();
    mask.push(("h.0.attn.bias".into(), "U8", vec![4], vec![]));
    let backwards = |entries: &mut Vec<String>| {
        let last = entries.last_mut().unwrap();
        *last = last.replace(&format!("[{end},{end}]"), &format!("[{end},{}]", end - 4));
    };
    let said = read(&plan, &file_with(&mask, backwards)).unwrap_err().to_string();
    let expected = format!("expected bytes [{end}, {end}], found [{end}, {}]", end - 4);
    assert!(said.ends_with(&expected), "{said}");
    // More elements than can be counted are not none.
    mask.last_mut().unwrap().1 = "F32";
    mask.last_mut().unwrap().2 = vec![1 << 32, 1 << 32];
    let said = read(&plan, &file(&mask)).unwrap_err().to_string();
    assert!(said.ends_with(&format!("expected bytes [{end}, {}], found [{end}, {end}]", u64::MAX)), "{said}");
}

#[test]
fn a_llamas_table_and_names_are_known_too() {
    let (plan, _) = run_of(&llama_toml().replace("hidden_act", "tie_word_embeddings = true\nhidden_act"));
    let flat = first_state(&plan).parameters;
    let mut all = tensors(&plan, &flat);
    all.iter_mut().for_each(|tensor| tensor.0 = tensor.0.trim_start_matches("model.").to_owned());
    let (_, dtype, shape, bytes) = all[0].clone();
    all.push(("lm_head.weight".into(), dtype, shape, bytes));
    assert_eq!(bits(&read(&plan, &file(&all)).unwrap()), bits(&flat));
    all.last_mut().unwrap().3[0] ^= 1;
    let wrong = read(&plan, &file(&all)).unwrap_err();
    assert!(
        matches!(&wrong, WrongWeights::Untied { table } if table == "model.embed_tokens.weight"),
        "{wrong}"
    );
}

#[test]
fn what_is_not_the_model_is_refused_by_name() {
    let (plan, _) = run(SMALL);
    let flat = first_state(&plan).parameters;
    let good = tensors(&plan, &flat);
    let refused = |change: &dyn Fn(&mut Vec<Tensor>)| {
        let mut all = good.clone();
        change(&mut all);
        read(&plan, &file(&all)).unwrap_err().to_string()
    };
    let name = good[2].0.clone();
    assert_eq!(
        refused(&|all| drop(all.remove(2))),
        format!("expected tensor {name:?}, found none of that name")
    );
    let twice = refused(&|all| {
        all.push((name.trim_start_matches("transformer.").into(), "F32", vec![36], vec![0; 144]))
    });
    assert_eq!(
        twice,
        format!("expected tensor {name:?} once, found it twice (with and without its prefix is twice)")
    );
    for name in ["score.weight", "score.bias", "h.0.attn.bias2"] {
        let said = refused(&|all| all.push((name.into(), "F32", vec![1], vec![0; 4])));
        assert_eq!(said, format!("expected no tensor {name:?}"));
    }
    assert_eq!(
        refused(&|all| (all[2].2, all[2].3) = (vec![35], vec![0; 140])),
        format!("tensor {name:?}: expected shape [36], found [35]")
    );
    assert_eq!(
        refused(&|all| (all[2].1, all[2].3) = ("F64", vec![0; 288])),
        format!("tensor {name:?}: expected dtype F32, F16 or BF16, found F64")
    );
    for value in [f32::NAN, f32::INFINITY] {
        let said = refused(&|all| all[2].3[140..].copy_from_slice(&value.to_le_bytes()));
        assert_eq!(said, format!("tensor {name:?}: expected finite values, found {value} at element 35"));
    }
    // Bytes that belong to no tensor, or to two.
    let mut bytes = file(&good);
    bytes.push(0);
    assert!(read(&plan, &bytes).unwrap_err().to_string().contains("bytes after the header"));
    bytes.truncate(bytes.len() - 5);
    assert!(read(&plan, &bytes).unwrap_err().to_string().contains("bytes after the header"));
    let shared = file(&good);
    let at = shared.windows(18).position(|text| text == b"\"data_offsets\":[0,").expect("the first tensor");
    let mut shared = shared;
    shared[at + 16] = b'4';
    assert!(read(&plan, &shared).unwrap_err().to_string().contains("expected bytes [0, "));
    assert!(read(&plan, b"").is_err() && read(&plan, &[0xff; 64]).is_err());
    let index = std::path::Path::new("model.safetensors.index.json");
    let wrong = weights::read(index, &plan.parameters).unwrap_err();
    assert!(wrong.to_string().contains("index of several"), "{wrong}");
}
