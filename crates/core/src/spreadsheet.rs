//! What a spreadsheet makes of a text.

use std::borrow::Cow;

/// What makes a spreadsheet compute a text (<https://owasp.org/www-community/attacks/CSV_Injection>).
const COMPUTED: [char; 11] = ['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'];

/// A text for a cell of a CSV: with a `'` before it if a spreadsheet would compute it.
pub fn spreadsheet_safe(text: &str) -> Cow<'_, str> {
    if text.starts_with(COMPUTED) {
        Cow::Owned(format!("'{text}"))
    } else {
        Cow::Borrowed(text)
    }
}
