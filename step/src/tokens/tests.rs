use super::cut::{Cut, SPACES_MAX, UNCUT_BYTES_MAX};
use super::tokenizer::{Tokenizer, WORDS};
use super::wrong::{TokensError, WrongTokenizer, WrongTokens};
use super::{BLOCK_BYTES, Stream, TOKENS_MAX};
use schemas::config::Data;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::LazyLock;

/// Files in a folder of their own.
struct Folder(tempfile::TempDir);

impl Folder {
    fn with(files: &[(&str, &[u8])]) -> Folder {
        let folder = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, bytes)| std::fs::write(folder.path().join(name), bytes).unwrap());
        Folder(folder)
    }

    fn read(
        &self,
        format: &str,
        tokenizer: Option<&str>,
        files: &[&str],
        vocabulary: u32,
    ) -> Result<Stream, TokensError> {
        let files = files.iter().map(|file| (*file).into()).collect();
        let tokenizer = tokenizer.map(str::to_owned);
        let data = Data { format: format.into(), tokenizer, files, sequences: 1, length: 1, seed: 0 };
        Stream::read(&data, self.0.path(), vocabulary, &mut |_, _| ())
    }
}

fn read_one(
    format: &str,
    tokenizer: Option<&str>,
    bytes: &[u8],
    vocabulary: u32,
) -> Result<Vec<u32>, WrongTokens> {
    let folder = Folder::with(&[("one", bytes)]);
    match folder.read(format, tokenizer, &["one"], vocabulary) {
        Ok(stream) => Ok(stream.tokens),
        Err(TokensError::Wrong { path, wrong }) if path.ends_with("one") => Err(wrong),
        Err(other) => panic!("{other}"),
    }
}

fn llmc(magic: u32, version: u32, count: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = [magic, version, count].iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.resize(1024, 0);
    bytes.extend_from_slice(body);
    bytes
}

fn uint16(tokens: &[u32]) -> Vec<u8> {
    tokens.iter().flat_map(|token| (*token as u16).to_le_bytes()).collect()
}

fn uint32(tokens: &[u32]) -> Vec<u8> {
    tokens.iter().flat_map(|token| token.to_le_bytes()).collect()
}

#[test]
fn every_format_gives_the_same_stream_for_the_same_tokens() {
    let text = "Hello world, the quick brown fox.";
    let folder = Folder::with(&[("a.txt", text.as_bytes()), ("gpt2.json", GPT2_JSON.as_bytes())]);
    let want = folder.read("text", Some("gpt2"), &["a.txt"], 50257).unwrap().tokens;
    assert_eq!(want[..3], [15496, 995, 11]);
    assert_eq!(folder.read("text", Some("gpt2.json"), &["a.txt"], 50257).unwrap().tokens, want);
    let count = want.len() as u32;
    assert_eq!(read_one("nanogpt", None, &uint16(&want), 50257), Ok(want.clone()));
    assert_eq!(read_one("llmc", None, &llmc(20_240_520, 1, count, &uint16(&want)), 50257), Ok(want.clone()));
    assert_eq!(read_one("llmc", None, &llmc(20_240_801, 7, count, &uint32(&want)), 50257), Ok(want));
    assert_eq!(read_one("text", Some("bytes"), b"ab\xff", 256), Ok(vec![97, 98, 255]));
}

#[test]
fn shards_are_joined_in_the_order_given_and_know_their_places() {
    let folder = Folder::with(&[("one", b"ab"), ("two", b"c"), ("three", b"defg")]);
    let stream = folder.read("text", Some("bytes"), &["two", "one", "t*"], 256).unwrap();
    assert_eq!(stream.tokens, b"cabdefgc".map(u32::from));
    let places: Vec<(&str, u64, u64)> =
        stream.shards.iter().map(|shard| (shard.path.to_str().unwrap(), shard.first, shard.tokens)).collect();
    assert_eq!(places, [("two", 0, 1), ("one", 1, 2), ("three", 3, 4), ("two", 7, 1)]);
    let of = |place| stream.shards_of(place..=place).first().map(|shard| shard.first);
    assert_eq!([0, 1, 2, 3, 6, 7, 8].map(of), [Some(0), Some(1), Some(1), Some(3), Some(3), Some(7), None]);
}

#[test]
fn a_place_in_a_later_file_is_counted_from_its_own_beginning() {
    let folder = Folder::with(&[("a", b"abc"), ("b", &[7, 200])]);
    let refused = folder.read("text", Some("bytes"), &["a", "b"], 200).unwrap_err().to_string();
    assert!(
        refused.contains("b: expected tokens below model.vocab_size = 200, found 200 at token 1"),
        "{refused}"
    );
}

#[test]
fn what_is_read_is_told_over_all_files() {
    let folder = Folder::with(&[("one", b"abc"), ("two", b"defgh")]);
    let files = vec!["one".into(), "two".into()];
    let (format, tokenizer) = ("text".into(), Some("bytes".into()));
    let data = Data { format, tokenizer, files, sequences: 1, length: 1, seed: 0 };
    let mut told = Vec::new();
    Stream::read(&data, folder.0.path(), 256, &mut |done, total| told.push((done, total))).unwrap();
    assert_eq!(told, [(3, 8), (8, 8)]);
}

/// Told before memory is asked for: the file is all holes.
#[test]
fn one_token_more_than_a_stream_may_hold_is_refused() {
    let folder = Folder::with(&[]);
    let file = std::fs::File::create(folder.0.path().join("long")).unwrap();
    file.set_len(2 * (TOKENS_MAX + 1)).unwrap();
    let refused = folder.read("nanogpt", None, &["long"], 10).unwrap_err();
    assert!(matches!(&refused, TokensError::Wrong { wrong: WrongTokens::TooMany, .. }), "{refused}");
}

/// Documents are encoded apart: no word goes over the end of a file, and nothing is put between two.
#[test]
fn each_text_file_is_a_document() {
    let folder = Folder::with(&[("1", b"Hello wor"), ("2", b"ld")]);
    let stream = folder.read("text", Some("gpt2"), &["1", "2"], 50257).unwrap();
    let ranks = Tokenizer::open("gpt2", Path::new("")).unwrap();
    let apart = [ranks.encode("Hello wor").unwrap(), ranks.encode("ld").unwrap()].concat();
    assert_eq!(stream.tokens, apart);
    assert_ne!(stream.tokens, [15496, 995]);
}

#[test]
fn wrong_files_are_refused_with_what_is_wrong() {
    use WrongTokens::*;
    let good = [1, 0, 2, 0];
    let cases = [
        ("nanogpt", vec![1, 0, 2], Odd { found: 3 }),
        ("nanogpt", vec![], Empty),
        ("nanogpt", vec![9, 0, 10, 0], Vocabulary { vocabulary: 10, token: 10, index: 1 }),
        ("llmc", vec![], Empty),
        ("llmc", vec![0; 1023], Header { found: 1023 }),
        ("llmc", llmc(20_240_520, 7, 2, &good), Magic { magic: 20_240_520, version: 7 }),
        ("llmc", llmc(20_240_801, 1, 1, &good), Magic { magic: 20_240_801, version: 1 }),
        ("llmc", llmc(20_240_522, 1, 2, &good), Magic { magic: 20_240_522, version: 1 }),
        ("llmc", llmc(20_240_520, 1, 3, &good), Length { count: 3, expected: 6, found: 4 }),
        ("llmc", llmc(20_240_520, 1, 1, &good), Length { count: 1, expected: 2, found: 4 }),
        ("llmc", llmc(20_240_520, 1, 0, &[]), Empty),
        (
            "llmc",
            llmc(20_240_801, 7, u32::MAX, &good),
            Length { count: 0xffff_ffff, expected: 17_179_869_180, found: 4 },
        ),
    ];
    for (format, bytes, want) in cases {
        assert_eq!(read_one(format, None, &bytes, 10), Err(want));
    }
    assert_eq!(read_one("text", Some("bytes"), &[], 10), Err(Empty));
    let beyond = Vocabulary { vocabulary: 10, token: 10, index: 1 };
    assert_eq!(read_one("text", Some("bytes"), &[3, 10, 9], 10), Err(beyond));
    let beyond = Vocabulary { vocabulary: 995, token: 995, index: 2 };
    assert_eq!(read_one("text", Some("gpt2"), b" the the world", 995), Err(beyond));
}

/// The message is what a person sees: which file, what was expected, what was found, what to do.
#[test]
fn messages_name_the_file_the_place_and_the_next_step() {
    let folder =
        Folder::with(&[("cut.bin", &llmc(20_240_520, 1, 3, &[0; 4])), ("b.bin", &[1, 0, 9, 0]), ("e", b"")]);
    let message = |format: &str, tokenizer: Option<&str>, files: &[&str]| {
        let message = folder.read(format, tokenizer, files, 9).unwrap_err().to_string();
        message.replace(&folder.0.path().display().to_string(), "DIR")
    };
    assert_eq!(
        message("llmc", None, &["cut.bin"]),
        "DIR/cut.bin: expected 6 bytes of tokens (3 tokens, as the header says), found 4; the file is cut short"
    );
    assert_eq!(
        message("nanogpt", None, &["b.bin"]),
        "DIR/b.bin: expected tokens below model.vocab_size = 9, found 9 at token 1 of the file; is it of another \
         tokenizer?"
    );
    // The second shard's place is counted from its own beginning.
    let second = message("nanogpt", None, &["b.bin", "none.bin"]);
    assert!(
        second.starts_with("could not read DIR/none.bin: "),
        "a missing file shows before any is read: {second}"
    );
    assert_eq!(message("nanogpt", None, &["b.bin", "e"]), "DIR/e: expected at least one token, found none");
    assert_eq!(message("nanogpt", None, &["."]), "DIR/.: expected a regular file");
    assert!(
        message("nanogpt", None, &["x*.bin"])
            .starts_with("data.files: \"x*.bin\": expected at least one file")
    );
    let tokenizer = message("text", Some("t.json"), &["b.bin"]);
    assert!(tokenizer.starts_with("DIR/t.json: could not read it: "), "{tokenizer}");
}

/// Known encodings, as tiktoken gives them.
#[test]
fn gpt2_gives_the_known_tokens() {
    let gpt2 = Tokenizer::open("gpt2", Path::new("")).unwrap();
    let known: [(&str, &[u32]); 9] = [
        ("Hello world", &[15496, 995]),
        (" the", &[262]),
        ("a   b", &[64, 220, 220, 275]),
        ("\u{65e5}\u{672c}\u{8a9e}", &[33768, 98, 17312, 105, 45739, 252]),
        ("\u{1f600}", &[47249, 222]),
        ("a  b   c\n\n\n  d", &[64, 220, 275, 220, 220, 269, 628, 198, 220, 288]),
        ("I'll don't WE'RE", &[40, 1183, 836, 470, 12887, 6, 2200]),
        ("x\t\ty 1234567", &[87, 197, 197, 88, 17031, 2231, 3134]),
        // Not special: thirteen characters.
        ("<|endoftext|>", &[27, 91, 437, 1659, 5239, 91, 29]),
    ];
    for (text, tokens) in known {
        assert_eq!(gpt2.encode(text).unwrap(), tokens, "{text:?}");
        assert_eq!(gpt2.decode(tokens).unwrap(), text);
    }
    assert_eq!(gpt2.decode(&[50256]).unwrap(), "<|endoftext|>");
    assert_eq!(gpt2.decode(&[50257]), None);
    assert_eq!(gpt2.decode(&[33768]).unwrap().chars().last(), Some('\u{fffd}'));
    let page = include_str!("../../../docs/spec/config.md");
    for (name, (_, tokens)) in ["`Hello world`", "` the`", "`a`, three spaces, `b`"].iter().zip(known) {
        let tokens: Vec<String> = tokens.iter().map(u32::to_string).collect();
        assert!(page.contains(&format!("| {name} | {} |", tokens.join(" "))), "{name}");
    }
}

/// Texts of the characters that patterns tell apart.
fn painted(seed: u64, chars: usize) -> String {
    const LETTERS: [&str; 20] = [
        " ",
        " ",
        "\n",
        "\r\n",
        "\t",
        "a",
        "b",
        "T",
        "1",
        "23",
        "'",
        "s",
        ".",
        "-",
        "\u{3000}",
        "\u{e9}",
        "\u{4e2d}",
        "e\u{301}",
        "\u{1f600}",
        "\u{85}",
    ];
    let mut state = seed;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        LETTERS[(state >> 33) as usize % LETTERS.len()]
    };
    (0..chars).map(|_| letter()).collect()
}

#[test]
fn cutting_at_safe_places_changes_no_token() {
    let llama3 = Tokenizer::from_json(word_json(LLAMA3).to_string().as_bytes()).unwrap();
    let qwen2 = Tokenizer::from_json(word_json(&LLAMA3.replace("{1,3}", "")).to_string().as_bytes()).unwrap();
    assert_eq!([llama3.cut, qwen2.cut], [Cut::BeforeSpaceOrAfterLine; 2]);
    let gpt2 = Tokenizer::open("gpt2", Path::new("")).unwrap();
    let file = Tokenizer::from_json(GPT2_JSON.as_bytes()).unwrap();
    assert_eq!(file.cut, Cut::BeforeSpace);
    let mut parts_seen = 0;
    for seed in 0..400 {
        let text = painted(seed, 40);
        for tokenizer in [&gpt2, &file, &llama3, &qwen2] {
            let whole = tokenizer.encode(&text).unwrap();
            let parts = tokenizer.cut.parts(&text, 1);
            parts_seen += parts.len();
            let apart: Vec<u32> = parts.iter().flat_map(|part| tokenizer.encode(part).unwrap()).collect();
            assert_eq!(apart, whole, "{tokenizer:?} {text:?}");
        }
        assert_eq!(gpt2.encode(&text), file.encode(&text), "two programs, one encoding: {text:?}");
    }
    assert!(parts_seen > 10_000, "{parts_seen}");
}

/// A file of several blocks, with characters over their borders, on one thread and on several.
#[test]
fn blocks_and_threads_do_not_show_in_the_tokens() {
    let line = painted(7, 5000);
    let text = line.repeat(BLOCK_BYTES / line.len() + 2);
    assert!(text.len() > BLOCK_BYTES);
    let folder = Folder::with(&[("text", text.as_bytes())]);
    let read = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| folder.read("text", Some("gpt2"), &["text"], 50257).unwrap().tokens)
    };
    let whole = Tokenizer::open("gpt2", Path::new("")).unwrap().encode(&text).unwrap();
    for threads in [1, 3] {
        assert!(read(threads) == whole, "{threads} threads");
    }
    // Every place of a border within a character.
    for shift in 1..4 {
        let text = format!("{}\u{1f600} b", " a".repeat(BLOCK_BYTES / 2 - 1) + &"c".repeat(shift));
        let folder = Folder::with(&[("text", text.as_bytes())]);
        let tokens = folder.read("text", Some("gpt2"), &["text"], 50257).unwrap().tokens;
        assert_eq!(tokens[tokens.len() - 3..], [47249, 222, 275]);
    }
}

#[test]
fn texts_that_cannot_be_encoded_are_refused_with_the_place() {
    let gpt2 = |bytes: &[u8]| read_one("text", Some("gpt2"), bytes, 50257);
    assert_eq!(gpt2(b"good\xff"), Err(WrongTokens::Utf8 { at: 4 }));
    assert_eq!(gpt2(b"good \xe2\x82"), Err(WrongTokens::Utf8 { at: 5 }));
    let mut long = "word ".repeat(BLOCK_BYTES / 5 + 10).into_bytes();
    long.push(0x80);
    assert_eq!(gpt2(&long), Err(WrongTokens::Utf8 { at: long.len() as u64 - 1 }));
    let spaces = format!("ab{}c", " ".repeat(SPACES_MAX));
    // As long as may be, and both programs follow it: the last space belongs to what comes after.
    let file = Tokenizer::from_json(GPT2_JSON.as_bytes()).unwrap();
    assert_eq!(gpt2(spaces.as_bytes()).unwrap(), file.encode(&spaces).unwrap());
    assert_eq!(file.encode(&spaces).unwrap().last(), Some(&269));
    assert_eq!(gpt2(spaces.replace('c', "\n").as_bytes()), Err(WrongTokens::Spaces { at: 2 }));
    // The place is one of the file, also where blocks have gone before.
    let late = "word ".repeat(BLOCK_BYTES / 2);
    let refused = gpt2(format!("{late}b{} ", " ".repeat(SPACES_MAX)).as_bytes());
    assert_eq!(refused, Err(WrongTokens::Spaces { at: late.len() as u64 + 1 }));
    let before = "word ".repeat(BLOCK_BYTES / 5 + 10);
    let word = "a".repeat(UNCUT_BYTES_MAX + 2 * BLOCK_BYTES);
    let refused = gpt2([before.as_bytes(), word.as_bytes()].concat().as_slice());
    assert_eq!(refused, Err(WrongTokens::Uncut { at: before.len() as u64 - 1 }));
    // What a tokenizer.json has no token for, and no unknown token either, is left out by the library; nothing is left.
    let none = json!({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}});
    let folder = Folder::with(&[("t.json", none.to_string().as_bytes()), ("text", b"b")]);
    let refused = folder.read("text", Some("t.json"), &["text"], 10).unwrap_err().to_string();
    assert!(refused.ends_with("text: expected at least one token, found none"), "{refused}");
}

/// A tokenizer of Llama's kind: a sign for the space, byte fallback, special tokens in the text.
fn llama_json() -> Value {
    let mut vocab = serde_json::Map::new();
    let bytes = (0..256).map(|byte| format!("<0x{byte:02X}>"));
    let words = ["\u{2581}", "a", "b", "\u{2581}a", "ab", "\u{2581}ab"].map(String::from);
    let names = ["<unk>", "<s>", "</s>"].map(String::from).into_iter().chain(bytes).chain(words);
    names.enumerate().for_each(|(id, name)| drop(vocab.insert(name, id.into())));
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    json!({
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": null,
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u{2581}"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"}]},
        "pre_tokenizer": null,
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "vocab": vocab,
            "merges": ["\u{2581} a", "a b", "\u{2581}a b"]}
    })
}

#[test]
fn a_tokenizer_json_of_llamas_kind_is_read() {
    let llama = Tokenizer::from_json(llama_json().to_string().as_bytes()).unwrap();
    assert_eq!(llama.cut, Cut::Never);
    let cases: [(&str, &[u32]); 5] = [
        ("ab ab", &[264, 264]),
        ("bab", &[259, 261, 263]),
        ("a\u{e9}b", &[262, 3 + 0xc3, 3 + 0xa9, 261]),
        ("a</s>b", &[262, 2, 259, 261]),
        ("a\n", &[262, 3 + 10]),
    ];
    for (text, tokens) in cases {
        // Neither `<s>` is put before it, nor is it cut to the two tokens of `truncation`.
        assert_eq!(llama.encode(text).unwrap(), tokens, "{text:?}");
    }
    assert_eq!(llama.decode(&[264, 264, 198, 172]).unwrap(), "ab ab\u{e9}");
    assert_eq!(llama.decode(&[1, 264]).unwrap(), "<s> ab", "what is read is shown, special tokens too");
    let mut padded = llama_json();
    padded["padding"] = json!({"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": null,
                               "pad_id": 0, "pad_type_id": 0, "pad_token": "<unk>"});
    let padded = Tokenizer::from_json(padded.to_string().as_bytes()).unwrap();
    assert_eq!(padded.encode("ab ab").unwrap(), [264, 264], "a stream has no batch to be filled up");
    let hash = schemas::config::tokenizer_identity(llama_json().to_string().as_bytes());
    assert_eq!(llama.identity, hash);
    assert_eq!(hash.len(), "sha256:".len() + 64);
    // A text that is not cut is read whole, up to a limit.
    let folder = Folder::with(&[("t.json", llama_json().to_string().as_bytes())]);
    std::fs::write(folder.0.path().join("long"), vec![b'a'; UNCUT_BYTES_MAX + 1]).unwrap();
    let refused = folder.read("text", Some("t.json"), &["long"], 300).unwrap_err().to_string();
    assert!(refused.contains("without a place to cut it"), "{refused}");
}

#[test]
fn what_is_no_usable_tokenizer_json_is_refused_by_name() {
    let changed = |path: &str, value: Value| {
        let mut json = llama_json();
        *json.pointer_mut(path).unwrap() = value;
        Tokenizer::from_json(json.to_string().as_bytes()).map(|_| ()).unwrap_err()
    };
    for name in ["WordPiece", "WordLevel", "Unigram", "\u{7}"] {
        let found = json!(name).to_string();
        assert_eq!(changed("/model/type", json!(name)), WrongTokenizer::Model { found });
    }
    assert_eq!(changed("/model/dropout", json!(0.1)), WrongTokenizer::Dropout { found: "0.1".into() });
    let mut none = llama_json();
    none["model"]["dropout"] = json!(0.0);
    assert!(Tokenizer::from_json(none.to_string().as_bytes()).is_ok(), "none at all");
    let WrongTokenizer::Model { found } = changed("/model/type", json!("x".repeat(300))) else { panic!() };
    assert_eq!(found.chars().count(), 200, "the beginning of what a file says");
    assert!(matches!(changed("/model/vocab", json!(3)), WrongTokenizer::Format(_)));
    // A merge of what is not in the vocabulary.
    assert!(matches!(changed("/model/merges/0", json!("x y")), WrongTokenizer::Format(_)));
    assert!(matches!(changed("/normalizer", json!({"type": "Nothing"})), WrongTokenizer::Format(_)));
    for text in ["", "{", "[]", "{}", "\u{7}", "{\"model\": {}}", "{\"model\": {\"type\": null}}"] {
        let refused = Tokenizer::from_json(text.as_bytes()).map(|_| ()).unwrap_err();
        assert!(matches!(refused, WrongTokenizer::Format(_)), "{text}: {refused}");
        assert!(!refused.to_string().contains('\u{7}'));
    }
    let folder = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(folder.path().join("t.json")).unwrap();
    file.set_len((64 << 20) + 1).unwrap();
    let refused = Tokenizer::open("t.json", folder.path()).unwrap_err().to_string();
    assert!(refused.ends_with("t.json: expected at most 67108864 bytes, found 67108865"), "{refused}");
    assert!(Tokenizer::open(".json", folder.path()).is_err());
    std::fs::create_dir(folder.path().join("d.json")).unwrap();
    let refused = Tokenizer::open("d.json", folder.path()).unwrap_err().to_string();
    assert!(refused.contains("d.json: could not read it: expected a regular file"), "{refused}");
}

/// Only what is known to be local may be cut; anything else is encoded whole.
#[test]
fn a_tokenizer_json_is_cut_only_where_its_parts_are_known() {
    let cut = |path: &str, value: Value| {
        let mut json = word_json(LLAMA3);
        *json.pointer_mut(path).unwrap() = value;
        Tokenizer::from_json(json.to_string().as_bytes()).unwrap().cut
    };
    let added = |field: &str, value: Value| {
        let mut token = json!({"id": 256, "content": "<x>", "single_word": false, "lstrip": false, "rstrip": false,
                               "normalized": false, "special": true});
        token[field] = value;
        cut("/added_tokens", json!([token]))
    };
    assert_eq!(cut("/normalizer", json!({"type": "NFC"})), Cut::BeforeSpaceOrAfterLine);
    assert_eq!(added("special", json!(true)), Cut::BeforeSpaceOrAfterLine);
    for other in [
        cut("/normalizer", json!({"type": "NFKC"})),
        cut("/pre_tokenizer", json!({"type": "Whitespace"})),
        cut("/pre_tokenizer/type", json!("Whitespace")),
        cut("/pre_tokenizer/pretokenizers/0/type", json!("Whitespace")),
        cut("/pre_tokenizer/pretokenizers/1/type", json!("Whitespace")),
        cut("/pre_tokenizer/pretokenizers/0/behavior", json!("Removed")),
        cut("/pre_tokenizer/pretokenizers/0/invert", json!(true)),
        cut("/pre_tokenizer/pretokenizers/0/pattern/Regex", json!("\\s+")),
        cut("/pre_tokenizer/pretokenizers/1/use_regex", json!(true)),
        cut("/pre_tokenizer/pretokenizers/1/add_prefix_space", json!(true)),
        added("content", json!("<x y>")),
        added("content", json!("")),
        added("lstrip", json!(true)),
        added("rstrip", json!(true)),
    ] {
        assert_eq!(other, Cut::Never);
    }
}

const LLAMA3: &str = WORDS[0];

/// The characters that stand for the 256 bytes in byte-level vocabularies.
fn byte_char(byte: u8) -> char {
    let plain = |byte: &u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    match plain(&byte) {
        true => char::from(byte),
        false => char::from_u32(256 + (0..byte).filter(|other| !plain(other)).count() as u32).unwrap(),
    }
}

/// A byte-level tokenizer with the words of `pattern`, in which every two of some bytes merge: words that differ show.
fn word_json(pattern: &str) -> Value {
    let mut vocab: serde_json::Map<String, Value> =
        (0..=255).map(|byte| (byte_char(byte).to_string(), u32::from(byte).into())).collect();
    let mut merges = Vec::new();
    for one in b" \n\r\taT12's.-\xc2\x85" {
        for other in b" \n\r\taT12's.-\xc2\x85" {
            let (one, other) = (byte_char(*one), byte_char(*other));
            vocab.insert(format!("{one}{other}"), (256 + merges.len()).into());
            merges.push(format!("{one} {other}"));
        }
    }
    json!({
        "added_tokens": [], "normalizer": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges}
    })
}

/// GPT-2 as a tokenizer.json: each token of several bytes is what the lower ranks make of its bytes, joined.
static GPT2_JSON: LazyLock<String> = LazyLock::new(|| {
    let ranks = tiktoken_rs::r50k_base_singleton();
    let bytes: Vec<Vec<u8>> = (0..50256).map(|rank| ranks.decode_bytes(&[rank]).unwrap()).collect();
    let rank_of: std::collections::HashMap<&[u8], usize> =
        bytes.iter().enumerate().map(|(rank, bytes)| (&bytes[..], rank)).collect();
    let name = |bytes: &[u8]| bytes.iter().map(|byte| byte_char(*byte)).collect::<String>();
    let mut merges = Vec::new();
    for (rank, token) in bytes.iter().enumerate().filter(|(_, token)| token.len() > 1) {
        let mut parts: Vec<&[u8]> = token.chunks(1).collect();
        while parts.len() > 2 {
            let joined =
                |at: &usize| &token[parts[..*at].concat().len()..][..parts[*at].len() + parts[*at + 1].len()];
            let lowest = (0..parts.len() - 1).filter(|at| rank_of.get(joined(at)).is_some_and(|r| *r < rank));
            let at = lowest.min_by_key(|at| rank_of[joined(at)]).unwrap();
            let whole = joined(&at);
            parts.splice(at..at + 2, [whole]);
        }
        merges.push(format!("{} {}", name(parts[0]), name(parts[1])));
    }
    let mut vocab: serde_json::Map<String, Value> =
        bytes.iter().enumerate().map(|(rank, bytes)| (name(bytes), rank.into())).collect();
    vocab.insert("<|endoftext|>".into(), 50256.into());
    json!({
        "added_tokens": [], "normalizer": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges}
    })
    .to_string()
});
