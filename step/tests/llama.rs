//! A Llama: its kernels against plain loops, its plan, its steps; SGD and groups of parameters.

mod inputs;
mod runs;

use inputs::{assert_bits, painted};
use runs::{assert_slopes, first_state, llama_toml, run_of};
use schemas::config::Config;
use schemas::digest::Checksum;
use schemas::object::Object;
use schemas::plan::{Plan, Rule};
use step::dispatch::Backend;
use step::execute::no_hook;
use step::kernels::{self, AttentionShape};
use step::number::elementary::exp;
use step::plan::{PlanError, derive};
use step::reference::sgd::{SgdConstants, sgd};
use step::reference::{embedding, reduce};
use step::session::Session;
use step::state::spans;
use step::tree::Accumulator;
use step::update;

/// One chain from +0.
fn chain(pairs: impl Iterator<Item = (f32, f32)>) -> f32 {
    pairs.fold(0.0, |acc, (a, b)| a.mul_add(b, acc))
}

#[test]
fn rms_normalisation_follows_the_text() {
    for (rows, channels) in [(1, 1), (3, 31), (4, 64), (130, 200)] {
        let (words, inv_c, eps) = (rows * channels, 1.0 / channels as f32, 1e-5_f32);
        let (x, gain, d_y) = (painted(words, 41), painted(channels, 42), painted(words, 43));
        let [mut y, mut d_x] = [(); 2].map(|_| vec![0.0; words]);
        let (mut rstd, mut d_gain) = (vec![0.0; rows], vec![9.0; channels]);
        kernels::rmsnorm_forward(Backend::detect(), &x, &gain, inv_c, eps, &mut y, &mut rstd);
        kernels::rmsnorm_backward_input(Backend::detect(), &d_y, &x, &gain, &rstd, inv_c, &mut d_x);
        kernels::rmsnorm_backward_gain(Backend::detect(), &d_y, &x, &rstd, &mut d_gain);
        let mut want_gain = vec![0.0_f32; channels];
        for (r, rstd) in rstd.iter().enumerate() {
            let row = r * channels..(r + 1) * channels;
            let (x, d_y) = (&x[row.clone()], &d_y[row.clone()]);
            let want_rstd = 1.0 / (reduce::warp32_dot(x, x) * inv_c + eps).sqrt();
            assert_bits(&[*rstd], &[want_rstd], "rstd");
            let xhat: Vec<f32> = x.iter().map(|x| x * want_rstd).collect();
            let g: Vec<f32> = (0..channels).map(|c| d_y[c] * gain[c]).collect();
            let m = reduce::warp32_dot(&g, &xhat) * inv_c;
            let want: Vec<f32> = (0..channels).map(|c| xhat[c] * gain[c]).collect();
            assert_bits(&y[row.clone()], &want, "y");
            let want: Vec<f32> = (0..channels).map(|c| want_rstd * (g[c] - xhat[c] * m)).collect();
            assert_bits(&d_x[row], &want, "d_x");
            (0..channels).for_each(|c| want_gain[c] = d_y[c].mul_add(xhat[c], want_gain[c]));
        }
        assert_bits(&d_gain, &want_gain, "d_gain");
    }
}

#[test]
fn rotation_follows_the_text_and_turns_back() {
    for (batches, times, heads, size) in [(1, 1, 1, 2), (3, 7, 2, 6), (2, 300, 3, 64)] {
        let (half, width) = (size / 2, heads * size);
        let rows = batches * times;
        let x = painted(rows * width, 44);
        let [cos, sin] = step::number::rotary::tables(10_000.0, times as u64, size as u64)
            .map(|words| words.into_iter().map(f32::from_bits).collect::<Vec<f32>>());
        let [mut y, mut d] = [(); 2].map(|_| vec![0.0; x.len()]);
        kernels::rope_forward(Backend::detect(), &x, &cos, &sin, half, width, &mut y);
        kernels::rope_backward(Backend::detect(), &x, &cos, &sin, half, width, &mut d);
        for (n, h, i) in
            (0..rows).flat_map(|n| (0..heads).flat_map(move |h| (0..half).map(move |i| (n, h, i))))
        {
            let (first, second) = (n * width + h * size + i, n * width + h * size + half + i);
            let (c, s) = (cos[n % times * half + i], sin[n % times * half + i]);
            let (x1, x2) = (x[first], x[second]);
            let want = [x1.mul_add(c, -(x2 * s)), x2.mul_add(c, x1 * s)];
            assert_bits(&[y[first], y[second]], &want, "y");
            let want = [x1.mul_add(c, x2 * s), x2.mul_add(c, -(x1 * s))];
            assert_bits(&[d[first], d[second]], &want, "d_x");
        }
        let mut back = vec![0.0; x.len()];
        kernels::rope_backward(Backend::detect(), &y, &cos, &sin, half, width, &mut back);
        assert!(x.iter().zip(&back).all(|(x, back)| (x - back).abs() <= x.abs().max(4.0) * 1e-6));
    }
}

#[test]
fn swiglu_and_its_extremes_follow_the_text() {
    let mut gate = painted(1000, 45);
    gate.extend([0.0, -0.0, 88.0, 89.0, -87.0, -88.5, -1e30, 1e30, f32::from_bits(1)]);
    let (up, d_y) = (painted(gate.len(), 46), painted(gate.len(), 47));
    let [mut y, mut d_gate, mut d_up] = [(); 3].map(|_| vec![0.0; gate.len()]);
    kernels::swiglu_forward(Backend::detect(), &gate, &up, &mut y);
    kernels::swiglu_backward(Backend::detect(), &d_y, &gate, &up, &mut d_gate, &mut d_up);
    for i in 0..gate.len() {
        let s = 1.0 / (1.0 + exp(-gate[i]));
        let a = gate[i] * s;
        let t = gate[i].mul_add(1.0 - s, 1.0);
        let want = [a * up[i], (d_y[i] * up[i]) * (s * t), d_y[i] * a];
        assert_bits(&[y[i], d_gate[i], d_up[i]], &want, &format!("gate {}", gate[i]));
        assert!(s > 0.0 && s <= 1.0);
    }
}

#[test]
fn grouped_heads_share_keys_in_one_chain() {
    for (batches, times, heads, kv_heads, size) in
        [(1, 1, 1, 1, 1), (2, 5, 6, 2, 4), (1, 40, 4, 1, 10), (2, 9, 3, 3, 8)]
    {
        let (rows, width, kv_width) = (batches * times, heads * size, kv_heads * size);
        let scale = 1.0 / (size as f32).sqrt();
        let shape = AttentionShape { batches, times, heads, kv_heads, head_size: size, scale };
        let (q, d_o) = (painted(rows * width, 48), painted(rows * width, 49));
        let (k, v) = (painted(rows * kv_width, 50), painted(rows * kv_width, 51));
        let [mut o, mut d_q] = [(); 2].map(|_| vec![0.0; rows * width]);
        let [mut d_k, mut d_v] = [(); 2].map(|_| vec![0.0; rows * kv_width]);
        let [mut max, mut sum] = [(); 2].map(|_| vec![0.0; rows * heads]);
        let backend = Backend::detect();
        kernels::grouped_attention_forward(backend, shape, &q, &k, &v, &mut o, &mut max, &mut sum);
        kernels::grouped_attention_backward(
            backend, shape, &q, &k, &v, &o, &d_o, &max, &sum, &mut d_q, &mut d_k, &mut d_v,
        );
        let (mut want_q, mut want_k, mut want_v) =
            (vec![0.0_f32; d_q.len()], vec![0.0_f32; d_k.len()], vec![0.0_f32; d_v.len()]);
        for (b, h) in (0..batches).flat_map(|b| (0..heads).map(move |h| (b, h))) {
            let at = |t: usize, c: usize| (b * times + t) * width + h * size + c;
            let kv = |u: usize, c: usize| (b * times + u) * kv_width + h / (heads / kv_heads) * size + c;
            for t in 0..times {
                let score = |u| chain((0..size).map(|c| (q[at(t, c)], k[kv(u, c)]))) * scale;
                let s: Vec<f32> = (0..=t).map(score).collect();
                let m = reduce::warp32_max(&s);
                let e: Vec<f32> = s.iter().map(|s| exp(s - m)).collect();
                let z = reduce::warp32_sum(&e);
                let p: Vec<f32> = e.iter().map(|e| e / z).collect();
                let place = (b * heads + h) * times + t;
                assert_bits(&[max[place], sum[place]], &[m, z], "m, z");
                let row = |x: &[f32]| (0..size).map(|c| x[at(t, c)]).collect::<Vec<f32>>();
                let want: Vec<f32> = (0..size).map(|c| chain((0..=t).map(|u| (p[u], v[kv(u, c)])))).collect();
                assert_bits(&row(&o), &want, "o");
                let d = reduce::warp32_dot(&row(&d_o), &row(&o));
                for u in 0..=t {
                    let dp = chain((0..size).map(|c| (d_o[at(t, c)], v[kv(u, c)])));
                    let ds = (p[u] * (dp - d)) * scale;
                    for c in 0..size {
                        want_q[at(t, c)] = ds.mul_add(k[kv(u, c)], want_q[at(t, c)]);
                        want_k[kv(u, c)] = ds.mul_add(q[at(t, c)], want_k[kv(u, c)]);
                        want_v[kv(u, c)] = p[u].mul_add(d_o[at(t, c)], want_v[kv(u, c)]);
                    }
                }
            }
        }
        assert_bits(&d_q, &want_q, "d_q");
        assert_bits(&d_k, &want_k, "d_k");
        assert_bits(&d_v, &want_v, "d_v");
    }
}

#[test]
fn a_token_embedding_is_a_copy() {
    let (table, ids) = (painted(7 * 5, 52), [3, 0, 6, 3]);
    let mut out = vec![0.0; 20];
    embedding::token_embedding_forward(&ids, &table, 5, &mut out);
    let want: Vec<f32> = ids.iter().flat_map(|id| &table[*id as usize * 5..][..5]).copied().collect();
    assert_bits(&out, &want, "rows");
}

#[test]
fn sgd_follows_the_text() {
    for nesterov in [false, true] {
        let c = SgdConstants { momentum: 0.9, nesterov, rate: 3e-2, decay: 0.01 };
        for g in inputs::both(400, 53) {
            let (p, m) = (painted(400, 54), painted(400, 55));
            let (mut new_p, mut new_m) = (p.clone(), m.clone());
            sgd(c, 0.25, &g, &mut new_p, &mut new_m);
            for i in 0..400 {
                let decayed = c.decay.mul_add(p[i], g[i] * 0.25);
                let want_m = c.momentum.mul_add(m[i], decayed);
                let upd = if nesterov { c.momentum.mul_add(want_m, decayed) } else { want_m };
                assert_bits(&[new_p[i], new_m[i]], &[(-c.rate).mul_add(upd, p[i]), want_m], "sgd");
            }
        }
    }
}

#[test]
fn a_plan_is_derived_the_same_twice_and_survives_its_encoding() {
    let (plan, _) = run_of(&llama_toml());
    assert_eq!(plan.digest(), run_of(&llama_toml()).0.digest());
    assert_eq!(Plan::decode(&plan.encode()).expect("a derived plan is well-formed"), plan);
    let names: Vec<&str> = plan.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
    assert_eq!(names[0], "model.embed_tokens.weight");
    assert_eq!(names[2], "model.layers.0.self_attn.q_proj.weight");
    assert_eq!(names[names.len() - 2..], ["model.norm.weight", "lm_head.weight"]);
    let tied = llama_toml().replace("hidden_act", "tie_word_embeddings = true\nhidden_act");
    assert_eq!(run_of(&tied).0.parameters.len(), plan.parameters.len() - 1);
    let state = first_state(&plan);
    for (parameter, span) in plan.parameters.iter().zip(spans(&plan.parameters)) {
        let square: f32 = state.parameters[span.clone()].iter().map(|x| x * x).sum();
        let spread = (square / span.len() as f32).sqrt();
        // Every matrix has the spread asked for, those back into the residual stream too.
        assert!(
            parameter.shape.len() == 1 || (0.045..0.055).contains(&spread),
            "{} {spread}",
            parameter.name
        );
    }
    let norm = spans(&plan.parameters)[1].clone();
    assert!(state.parameters[norm].iter().all(|gain| gain.to_bits() == 1.0_f32.to_bits()));
}

#[test]
fn the_largest_llama_has_a_plan_and_too_long_tables_have_none() {
    let none = Checksum([0; 32]);
    let of = |toml: &str| derive(&Config::from_toml(toml).expect("a config"), 1 << 21, none);
    let deep = llama_toml().replace("num_hidden_layers = 2", "num_hidden_layers = 512");
    let plan = of(&deep).expect("512 layers");
    Plan::decode(&plan.encode()).expect("a large plan is well-formed");
    let long = llama_toml()
        .replace("length = 11", "length = 1048576")
        .replace("max_position_embeddings = 16", "max_position_embeddings = 1048576");
    assert_eq!(of(&long), Err(PlanError::TooManyConstants { found: 4 * 10 * (1 << 20) + 8 * 3 * 60 }));
    // As many steps as a list may have take more bytes than all lists together.
    let steps = |count: u64| of(&llama_toml().replace("steps = 60", &format!("steps = {count}")));
    let found = 4 * 10 * 11 + 8 * 3 * (1 << 20);
    assert_eq!(steps(1 << 20), Err(PlanError::TooManyConstants { found }));
    assert_eq!(steps((1 << 20) + 1), Err(PlanError::TooManySteps { found: (1 << 20) + 1 }));
}

#[test]
fn a_group_has_its_own_rate_and_decay_and_no_group_is_empty() {
    let group = "\n[[optimizer.groups]]\nmatch = [\"*norm*\", \"lm_head.weight\"]\n\
                 learning_rate_factor = 0.5\nweight_decay = 0.2\n";
    let (plan, _) = run_of(&(llama_toml() + group));
    for parameter in &plan.parameters {
        let own = parameter.name.contains("norm") || parameter.name == "lm_head.weight";
        assert_eq!(parameter.group, usize::from(!own), "{}", parameter.name);
    }
    let last = |group: usize| plan.update.groups[group][1];
    assert_eq!(last(0).learning_rate, ((1e-2_f64 * 0.5) as f32).to_bits());
    assert_eq!(last(0).decay, ((1.0 - (1e-2_f64 * 0.5) * 0.2) as f32).to_bits());
    assert_eq!(last(1).decay, ((1.0 - 1e-2_f64 * 0.1) as f32).to_bits());
    assert_eq!((plan.update.groups.len(), last(2).decay), (3, 1.0_f32.to_bits()));

    // Of two groups that match a name the first has it.
    let second = "\n[[optimizer.groups]]\nmatch = [\"model.norm.*\", \"*q_proj*\"]\nweight_decay = 0.0\n";
    let (plan, _) = run_of(&(llama_toml() + group + second));
    let of =
        |part: &str| plan.parameters.iter().find(|parameter| parameter.name.contains(part)).unwrap().group;
    assert_eq!(["model.norm", "q_proj", "k_proj"].map(of), [0, 1, 2]);

    // A velocity that does not decay has no end.
    let momentum = |value: &str| Config::from_toml(&with_sgd(false).replace("momentum = 0.9", value));
    assert!(momentum("momentum = 0.999999").is_ok() && momentum("momentum = 1.0").is_err());
    let many = |count: usize| Config::from_toml(&(llama_toml() + &group.repeat(count)));
    assert!(many(14).is_ok() && many(15).is_err(), "a plan has two more groups, 16 in all");

    let empty = group.replace("*norm*", "*nrom*").replace("lm_head", "head");
    let config = Config::from_toml(&(llama_toml() + &empty)).expect("a config");
    let refused = derive(&config, 2000, Checksum([0; 32])).expect_err("nothing is called so");
    assert!(matches!(&refused, PlanError::EmptyGroup { patterns } if patterns[0] == "*nrom*"), "{refused}");
}

#[test]
fn what_a_group_leaves_out_is_the_optimizers() {
    let bare = "\n[[optimizer.groups]]\nmatch = [\"*norm*\"]\n";
    let (plan, _) = run_of(&(llama_toml() + bare));
    let settings = plan.update.groups[0][1];
    assert_eq!(settings.learning_rate, 1e-2_f32.to_bits());
    assert_eq!(settings.decay, ((1.0 - 1e-2_f64 * 0.1) as f32).to_bits());
    let said = run_of(&(llama_toml() + bare + "learning_rate_factor = 1.0\nweight_decay = 0.1\n")).0;
    assert_eq!(said.digest(), plan.digest(), "what is said or left out is one config");
    assert_ne!(run_of(&(llama_toml() + bare + "weight_decay = 0.0\n")).0.digest(), plan.digest());
    // What SGD adds to a gradient does not follow the rate.
    let sgd = run_of(&with_sgd(false)).0;
    assert!(sgd.update.groups[0].iter().all(|step| step.decay == 1e-4_f32.to_bits()));
    // No clipping is a clip that nothing reaches.
    let free = run_of(&llama_toml().replace("clip = 1.0\n", "")).0;
    assert_eq!(free.update.clip, f32::INFINITY.to_bits());
}

/// The mean loss of each of `count` steps.
fn losses(toml: &str, count: usize) -> Vec<f32> {
    let (plan, tokens) = run_of(toml);
    let session = Session::new(&plan, &tokens, Backend::detect()).expect("a session");
    let mut state = first_state(&plan);
    let mean =
        |losses: &[u32]| losses.iter().map(|bits| f32::from_bits(*bits)).sum::<f32>() / losses.len() as f32;
    (0..count).map(|_| mean(&session.step(&mut state).expect("a step").record.losses)).collect()
}

fn with_sgd(nesterov: bool) -> String {
    let (head, rest) =
        llama_toml().split_once("kind = \"adamw\"").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let rest = rest.split_once("weight_decay = 0.1").unwrap().1.to_owned();
    format!(
        "{head}kind = \"sgd\"\nlearning_rate = 0.5\nmomentum = 0.9\nnesterov = {nesterov}\nweight_decay = 1e-4{rest}"
    )
}

#[test]
fn a_small_llama_learns_with_either_optimizer() {
    let tied = llama_toml().replace("hidden_act", "tie_word_embeddings = true\nhidden_act");
    for toml in [llama_toml(), tied, with_sgd(false), with_sgd(true)] {
        let losses = losses(&toml, 40);
        let (first, last) = (losses[0], losses[39]);
        assert!(first > 4.0 && first < 4.4, "log 67 is 4.2, found {first}");
        assert!(last < 0.6 * first, "{losses:?}");
    }
}

/// Every tensor's gradient is the slope of the loss along it: the mathematics, where the tests above hold the bits.
#[test]
fn the_gradient_is_the_slope_of_the_loss_for_every_parameter_tensor() {
    let (plan, tokens) = run_of(&llama_toml());
    let session = Session::new(&plan, &tokens, Backend::detect()).expect("a session");
    let parameters = first_state(&plan).parameters;
    let gradient = session.leaf(0, 0, &parameters, &mut no_hook()).gradient.expect("a finite leaf");
    // Queries and keys hardly move the loss of a fresh model: a longer way shows their slope above rounding.
    assert_slopes(&plan, &session, &parameters, &gradient, |square| (0.01 / square).min(0.3 / square.sqrt()));
}

#[test]
fn sgd_leaves_the_second_moment_at_zero() {
    let (plan, tokens) = run_of(&with_sgd(true));
    assert!(matches!(plan.update.rule, Rule::Sgd { nesterov: true, .. }));
    let session = Session::new(&plan, &tokens, Backend::detect()).expect("a session");
    let mut state = first_state(&plan);
    session.step(&mut state).expect("a step");
    assert!(state.second_moment.iter().all(|v| v.to_bits() == 0));
    assert!(state.first_moment.iter().any(|m| *m != 0.0));
}

#[test]
fn neither_devices_nor_threads_nor_backend_change_a_bit() {
    let (plan, tokens) = run_of(&llama_toml());
    let two_steps = |backend: Backend, threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads");
        pool.install(|| {
            let session = Session::new(&plan, &tokens, backend).expect("a session");
            let mut state = first_state(&plan);
            [(); 2].map(|_| session.step(&mut state).expect("a step"))
        })
    };
    let want = two_steps(Backend::REFERENCE, 1);
    let others = Backend::all().into_iter().map(|backend| (backend, 2));
    for (backend, threads) in others.chain([1, 3, 7].map(|threads| (Backend::detect(), threads))) {
        let found = two_steps(backend, threads);
        for (found, want) in found.iter().zip(&want) {
            assert_eq!(found.record, want.record, "{backend} {threads}");
            assert_eq!(found.traces, want.traces, "{backend} {threads}");
        }
    }

    let session = Session::new(&plan, &tokens, Backend::detect()).expect("a session");
    let parameters = first_state(&plan).parameters;
    let outcome = want[0].record.outcome.as_ref().expect("a valid step");
    for devices in [1, 2, 4] {
        let each = plan.leaves / devices;
        let mut partials: Vec<Vec<f32>> = (0..devices)
            .map(|rank| {
                let mut tree = Accumulator::new(session.backend(), rank * each..(rank + 1) * each);
                for leaf in rank * each..(rank + 1) * each {
                    let done = session.leaf(0, leaf, &parameters, &mut no_hook());
                    tree.push(done.gradient.expect("a finite leaf"), |_, _| ());
                }
                tree.finish().into_vec()
            })
            .collect();
        while partials.len() > 1 {
            let add = |pair: &[Vec<f32>]| pair[0].iter().zip(&pair[1]).map(|(a, b)| a + b).collect();
            partials = partials.chunks(2).map(add).collect();
        }
        update::reduce(session.backend(), &plan, &mut partials[0]);
        assert_eq!(session.sum(&partials[0]).checksum, outcome.reduced, "{devices} devices");
    }
}
