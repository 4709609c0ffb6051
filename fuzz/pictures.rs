//! Fuzz targets for untrusted text in SVG images and HTML pages.

use topicmill_pages::display;
use topicmill_pages::report::svg::{escape, fit, width};

/// Drawn text stays on one line, within its width, and is properly escaped.
pub fn drawn_text(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let most = usize::from(bytes.first().copied().unwrap_or(0)) / 4;
    let line = display::single_line(&text, most);
    assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
    assert!(!line.starts_with(' ') && !line.ends_with(' '), "{line:?}");
    let shown = line.chars().filter(|c| !display::is_zero_width(*c)).count();
    assert!(shown <= most + 1, "{shown} of {most}: {line:?}");
    assert_eq!(display::single_line(&line, most + 1), line);

    let room = f64::from(u8::try_from(bytes.len() % 256).unwrap());
    let fitted = fit(&text, room);
    // Widths are sums of decimals, whose last bits depend on the order of summation.
    let most = room.max(width("…")) + 1e-9;
    assert!(width(&fitted) <= most, "{fitted:?}");

    let escaped = escape(&text);
    assert!(!escaped.contains(['<', '>', '"', '\'']));
    for part in escaped.split('&').skip(1) {
        let known = ["amp;", "lt;", "gt;", "quot;", "#39;"];
        assert!(known.iter().any(|word| part.starts_with(word)), "{part:?}");
    }
    let is_odd = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    assert!(!escaped.contains(is_odd));
    let back = html_escape::decode_html_entities(&escaped);
    assert_eq!(back, text.replace(is_odd, " "));
}
