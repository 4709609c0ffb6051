//! Charts as SVG, black on white: a line chart and bars. No more than the benchmarks need.

use std::fmt::Write;

/// A line of a chart: name, and points of x and y.
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// A chart of lines; y begins at 0.
pub struct Lines {
    pub title: String,
    pub x: String,
    pub y: String,
    /// Each step of x doubles.
    pub doubling: bool,
    pub series: Vec<Series>,
    /// A point of x to mark, and what it is.
    pub mark: Option<(f64, String)>,
}

/// A bar: its name, its length, and what is written behind it.
pub struct Bar {
    pub name: String,
    pub value: f64,
    pub note: String,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 60.0;
/// Told apart in print, too: dark to light, and dashed.
const STROKES: [(&str, &str); 3] = [("#1f4e79", ""), ("#c55a11", "6 4"), ("#548235", "2 3")];

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn begin(height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"13\" fill=\"#222\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"20\" y=\"28\" font-size=\"16\" font-weight=\"bold\">{}</text>\n",
        escaped(title)
    )
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, said: &str) {
    let said = escaped(said);
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{said}</text>"
    );
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), stroke: &str) {
    let _ = writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{stroke}\"/>",
        from.0, from.1, to.0, to.1
    );
}

/// A round step that divides `most` into four to ten parts.
fn step(most: f64) -> f64 {
    let power = 10_f64.powf((most / 4.0).log10().floor());
    [5.0, 2.0, 1.0]
        .map(|of| of * power)
        .into_iter()
        .find(|step| most / step >= 4.0)
        .unwrap_or(power)
}

/// A number as short as it can be read.
fn short(number: f64) -> String {
    let text = match number.abs() {
        size if size >= 10.0 => format!("{number:.0}"),
        size if size >= 1.0 => format!("{number:.1}"),
        _ => format!("{number:.3}"),
    };
    match text.split_once('.') {
        Some((whole, part)) => match part.trim_end_matches('0') {
            "" => whole.to_owned(),
            part => format!("{whole}.{part}"),
        },
        None => text,
    }
}

impl Lines {
    pub fn svg(&self) -> String {
        let mut svg = begin(HEIGHT, &self.title);
        let points = || self.series.iter().flat_map(|series| &series.points);
        let scaled = |x: f64| if self.doubling { x.log2() } else { x };
        let low = points().map(|p| scaled(p.0)).fold(f64::INFINITY, f64::min);
        let high = points().map(|p| scaled(p.0)).fold(low + 1e-9, f64::max);
        let most = points().map(|p| p.1).fold(1e-9, f64::max);
        let step = step(most);
        let top = (most / step).ceil() * step;
        let at_x = |x: f64| LEFT + (scaled(x) - low) / (high - low) * (WIDTH - LEFT - RIGHT);
        let at_y = |y: f64| HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM);

        let mut y = 0.0;
        while y <= top + step / 2.0 {
            line(&mut svg, (LEFT, at_y(y)), (WIDTH - RIGHT, at_y(y)), "#ddd");
            text(&mut svg, LEFT - 8.0, at_y(y) + 4.0, "end", &short(y));
            y += step;
        }
        let mut ticks: Vec<f64> = points().map(|p| p.0).collect();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        for x in ticks {
            line(
                &mut svg,
                (at_x(x), at_y(0.0)),
                (at_x(x), at_y(0.0) + 5.0),
                "#222",
            );
            text(&mut svg, at_x(x), at_y(0.0) + 20.0, "middle", &short(x));
        }
        line(
            &mut svg,
            (LEFT, at_y(0.0)),
            (WIDTH - RIGHT, at_y(0.0)),
            "#222",
        );
        let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
        text(&mut svg, middle, HEIGHT - 16.0, "middle", &self.x);
        let (x, y) = (22.0, f64::midpoint(TOP, HEIGHT - BOTTOM));
        let _ = writeln!(
            svg,
            "<text transform=\"translate({x} {y}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            escaped(&self.y)
        );
        if let Some((x, said)) = &self.mark {
            line(
                &mut svg,
                (at_x(*x), TOP - 8.0),
                (at_x(*x), at_y(0.0)),
                "#999",
            );
            let anchor = if at_x(*x) > WIDTH / 2.0 {
                "end"
            } else {
                "start"
            };
            text(&mut svg, at_x(*x), TOP - 13.0, anchor, said);
        }
        for (series, (stroke, dashes)) in self.series.iter().zip(STROKES.iter().cycle()) {
            let path: Vec<String> = series
                .points
                .iter()
                .map(|(x, y)| format!("{:.1},{:.1}", at_x(*x), at_y(*y)))
                .collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>",
                path.join(" ")
            );
            for (x, y) in &series.points {
                let (x, y) = (at_x(*x), at_y(*y));
                let _ = writeln!(
                    svg,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{stroke}\"/>"
                );
            }
        }
        // With one line the axis names it.
        if self.series.len() > 1 {
            let mut x = LEFT;
            for (series, (stroke, _)) in self.series.iter().zip(STROKES.iter().cycle()) {
                let _ = writeln!(
                    svg,
                    "<rect x=\"{x}\" y=\"38\" width=\"12\" height=\"12\" fill=\"{stroke}\"/>"
                );
                text(&mut svg, x + 18.0, 49.0, "start", &series.name);
                x += 210.0;
            }
        }
        svg + "</svg>\n"
    }
}

/// Bars from left to right, with the meaning of their length below.
pub fn bars(title: &str, unit: &str, bars: &[Bar]) -> String {
    const NAMES: f64 = 230.0;
    const NOTES: f64 = 170.0;
    const EACH: f64 = 34.0;
    let mut y = 56.0;
    #[expect(clippy::cast_precision_loss, reason = "a few bars")]
    let height = y + EACH * bars.len() as f64 + 40.0;
    let mut svg = begin(height, title);
    let most = bars.iter().map(|bar| bar.value).fold(1e-9, f64::max);
    for bar in bars {
        let width = bar.value / most * (WIDTH - NAMES - NOTES);
        let _ = writeln!(
            svg,
            "<rect x=\"{NAMES}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"22\" fill=\"#1f4e79\"/>"
        );
        text(&mut svg, NAMES - 8.0, y + 16.0, "end", &bar.name);
        text(&mut svg, NAMES + width + 8.0, y + 16.0, "start", &bar.note);
        y += EACH;
    }
    line(&mut svg, (NAMES, 50.0), (NAMES, y), "#222");
    text(&mut svg, NAMES, height - 16.0, "start", unit);
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_numbers_short() {
        let steps = [3.0, 42.0, 100.0, 0.9].map(step).map(short);
        assert_eq!(steps, ["0.5", "10", "20", "0.2"]);
        assert_eq!(
            [0.0, 0.25, 1.5, 2.0, 16_384.0].map(short),
            ["0", "0.25", "1.5", "2", "16384"]
        );
    }

    #[test]
    fn a_chart_names_its_axes_and_holds_every_point() {
        let lines = Lines {
            title: "a < b".into(),
            x: "tokens".into(),
            y: "posts/s".into(),
            doubling: true,
            series: vec![Series {
                name: "one".into(),
                points: vec![(256.0, 1.0), (512.0, 3.0), (1024.0, 2.0)],
            }],
            mark: Some((512.0, "best".into())),
        };
        let svg = lines.svg();
        for said in [
            "a &lt; b",
            ">tokens<",
            ">posts/s<",
            ">256<",
            ">1024<",
            ">best<",
        ] {
            assert!(svg.contains(said), "{said}: {svg}");
        }
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(!svg.contains("NaN"), "{svg}");
    }
}
