//! Protects CSV cells against formula injection.

use std::borrow::Cow;

/// First characters of a formula (<https://owasp.org/www-community/attacks/CSV_Injection>).
const FORMULA_STARTS: [char; 11] = ['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'];

/// Escapes text for a CSV cell: prefixes `'` if a spreadsheet would read the text as a formula.
pub fn spreadsheet_safe(text: &str) -> Cow<'_, str> {
    if text.starts_with(FORMULA_STARTS) {
        Cow::Owned(format!("'{text}"))
    } else {
        Cow::Borrowed(text)
    }
}
