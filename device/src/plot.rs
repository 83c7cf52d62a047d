//! A picture of a loss curve, as plain SVG.

use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 350.0;
const COLOR: &str = "#c2410c";
/// Columns that the curve is drawn in: of more steps than these, each column shows its lowest and highest loss.
const COLUMNS: usize = 670;

/// The curve of mean losses by step. Steps without a finite loss are left out.
pub fn draw(title: &str, losses: &[(u64, f32)]) -> String {
    let points: Vec<(f64, f64)> = losses
        .iter()
        .filter(|(_, loss)| loss.is_finite())
        .map(|&(step, loss)| (step as f64, f64::from(loss)))
        .collect();
    let (steps, step_marks) = axis(points.iter().map(|point| point.0), 1.0);
    let (range, loss_marks) = axis(points.iter().map(|point| point.1), 0.0);
    let x = |step: f64| LEFT + (step - steps.0) / (steps.1 - steps.0) * (WIDTH - LEFT - RIGHT);
    let y = |loss: f64| BOTTOM - (loss - range.0) / (range.1 - range.0) * (BOTTOM - TOP);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut out, LEFT, 24.0, "font-size=\"15\" font-weight=\"bold\"", title);
    text(&mut out, LEFT, 46.0, "", "mean loss of each step");
    for (loss, words) in loss_marks {
        let end = WIDTH - RIGHT;
        let at = y(loss);
        writeln!(out, "<path d=\"M{LEFT} {at:.1}H{end}\" stroke=\"#ddd\"/>")
            .expect("plot: a string takes every write");
        text(&mut out, LEFT - 8.0, at + 4.0, "text-anchor=\"end\"", &words);
    }
    for (step, words) in step_marks {
        text(&mut out, x(step), BOTTOM + 20.0, "text-anchor=\"middle\"", &words);
    }
    text(&mut out, (LEFT + WIDTH - RIGHT) / 2.0, BOTTOM + 40.0, "text-anchor=\"middle\"", "step");
    let at: Vec<String> =
        thinned(&points).iter().map(|&(step, loss)| format!("{:.1},{:.1}", x(step), y(loss))).collect();
    match &at[..] {
        // A line of one point is not seen.
        [_] => {
            let (step, loss) = points[0];
            let (x, y) = (x(step), y(loss));
            writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{COLOR}\"/>")
        }
        at => writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{COLOR}\" stroke-width=\"1.5\"/>",
            at.join(" ")
        ),
    }
    .expect("plot: a string takes every write");
    out + "</svg>\n"
}

fn text(out: &mut String, x: f64, y: f64, more: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" {more}>{words}</text>")
        .expect("plot: a string takes every write");
}

/// The ends of an axis over some values, and round marks on it that are no closer than `least`.
fn axis(values: impl Iterator<Item = f64>, least: f64) -> ((f64, f64), Vec<(f64, String)>) {
    let (low, high) = values
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
    // A curve that is level still needs a height to lie in.
    let span = (high - low).max(if least > 0.0 { least } else { high.abs().max(1.0) * 1e-3 });
    let mark = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|digit| digit * 10_f64.powi((span / 6.0).log10().floor() as i32))
        .find(|mark| span / mark <= 6.0)
        .unwrap_or(span)
        .max(least);
    // Losses lie between two marks; steps begin and end with the curve.
    let ends = match least > 0.0 {
        true => (low, low + span),
        false => ((low / mark).floor() * mark, ((low + span) / mark).ceil() * mark),
    };
    let digits = if mark < 1.0 { -mark.log10().floor() as usize } else { 0 };
    let first = (ends.0 / mark).ceil() as i64;
    let last = (ends.1 / mark + 1e-9).floor() as i64;
    let marks = (first..=last).map(|count| count as f64 * mark).map(|at| (at, format!("{at:.digits$}")));
    (ends, marks.collect())
}

/// The curve itself, or the lowest and the highest point of each column in the order of steps.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= 2 * COLUMNS {
        return points.to_vec();
    }
    let mut kept = Vec::new();
    for column in points.chunks(points.len().div_ceil(COLUMNS)) {
        let low = column.iter().copied().reduce(|a, b| if b.1 < a.1 { b } else { a });
        let high = column.iter().copied().reduce(|a, b| if b.1 > a.1 { b } else { a });
        let (Some(low), Some(high)) = (low, high) else { continue };
        let (first, second) = if low.0 <= high.0 { (low, high) } else { (high, low) };
        kept.push(first);
        if first.0 < second.0 {
            kept.push(second);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(values: &[f64], least: f64) -> Vec<String> {
        axis(values.iter().copied(), least).1.into_iter().map(|mark| mark.1).collect()
    }

    #[test]
    fn marks_are_round_and_few() {
        assert_eq!(marks(&[0.0, 299.0], 1.0), ["0", "50", "100", "150", "200", "250"]);
        assert_eq!(marks(&[0.0, 3.0], 1.0), ["0", "1", "2", "3"]);
        assert_eq!(marks(&[7.0, 7.0], 1.0), ["7", "8"]);
        assert_eq!(marks(&[5.4786, 5.2049], 0.0), ["5.20", "5.25", "5.30", "5.35", "5.40", "5.45", "5.50"]);
        assert_eq!(marks(&[10.9, 3.2], 0.0), ["2", "4", "6", "8", "10", "12"]);
        assert!(marks(&[], 1.0).len() <= 7 && marks(&[2.5, 2.5], 0.0).len() <= 8);
    }

    #[test]
    fn every_curve_lies_within_its_axes() {
        for curve in
            [vec![], vec![(0, 5.0)], vec![(3, 5.0), (4, f32::NAN), (5, 4.0)], vec![(0, 1.0), (1, 1.0)]]
        {
            let picture = draw("a & <b>", &curve);
            assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
            assert!(
                picture.contains("a &amp; &lt;b&gt;") && !picture.contains("NaN") && !picture.contains("inf")
            );
            let line = picture.split("points=\"").nth(1).unwrap_or("").split('"').next().unwrap_or("");
            for point in line.split_whitespace() {
                let (x, y) = point.split_once(',').unwrap();
                let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
                assert!((LEFT..=WIDTH - RIGHT).contains(&x) && (TOP..=BOTTOM).contains(&y), "{point}");
            }
            let finite = curve.iter().filter(|point| point.1.is_finite()).count();
            assert_eq!(line.split_whitespace().count(), if finite == 1 { 0 } else { finite });
        }
    }

    #[test]
    fn a_long_curve_keeps_its_peaks() {
        let mut losses: Vec<(u64, f32)> = (0..60_000).map(|step| (step, 3.0)).collect();
        losses[12_345].1 = 9.0;
        losses[54_321].1 = 0.5;
        let points: Vec<(f64, f64)> = losses.iter().map(|&(step, loss)| (step as f64, loss.into())).collect();
        let kept = thinned(&points);
        assert!(kept.len() <= 2 * COLUMNS && kept.is_sorted_by(|a, b| a.0 < b.0));
        assert!(kept.contains(&(12_345.0, 9.0)) && kept.contains(&(54_321.0, 0.5)));
    }
}
