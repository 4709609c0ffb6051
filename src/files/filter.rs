//! Which rows are written: a condition like `score >= 3 and label = 'science'`.
//!
//! In goes the condition as somebody typed it; out comes a [`Filter`], which is asked for each row of the output whether
//! the row stays. As in SQL, nothing is equal to null or greater than it: a row without a value for a column stays only
//! where the condition says `is null`.

use std::fmt;
use std::iter::Peekable;
use std::str::{Chars, FromStr};

use serde_json::Value;
use serde_json::value::RawValue;

use crate::tables::json::Members;

/// Parentheses in parentheses; whoever needs more writes a program.
const MAX_DEPTH: usize = 32;

/// A condition on the fields of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    text: String,
    condition: Condition,
}

/// What is wrong with a condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}; write it like `score >= 3` or `label = 'science' and margin > 0.5`")]
pub struct FilterError(String);

#[derive(Debug, Clone, PartialEq)]
enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Compared {
        column: String,
        operator: Operator,
        with: Literal,
    },
    Null {
        column: String,
        is: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

#[derive(Debug, Clone, PartialEq)]
enum Literal {
    Number(f64),
    Text(String),
    Flag(bool),
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let mut parser = Parser {
            tokens: tokens(text)?.into_iter().peekable(),
            depth: 0,
        };
        let condition = parser.any()?;
        match parser.tokens.next() {
            None => Ok(Self {
                text: text.to_owned(),
                condition,
            }),
            Some(token) => Err(FilterError(format!(
                "{token} follows a whole condition; join two with `and` or `or`"
            ))),
        }
    }
}

impl Filter {
    /// The columns that it reads, each once.
    pub fn columns(&self) -> Vec<&str> {
        let mut columns = Vec::new();
        self.condition.columns(&mut columns);
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// Whether it reads this column of the output.
    pub fn reads(&self, name: &str) -> bool {
        self.columns()
            .iter()
            .any(|column| *column == name || inside(column, name).is_some())
    }

    /// Whether a row stays.
    pub(super) fn keeps(&self, row: &Members) -> bool {
        self.condition.holds(row)
    }
}

/// What a column is called within another: `scores.science` is `science` within `scores`.
pub(super) fn inside<'a>(column: &'a str, outer: &str) -> Option<&'a str> {
    column.strip_prefix(outer)?.strip_prefix('.')
}

/// The value of a column, null where the row has none.
fn value_of(row: &Members, column: &str) -> Value {
    let read = |value: &RawValue| serde_json::from_str(value.get()).unwrap_or(Value::Null);
    if let Some((_, value)) = row.0.iter().find(|(name, _)| name == column) {
        return read(value);
    }
    let within = row.0.iter().find_map(|(name, value)| {
        let name = inside(column, name)?;
        read(value).as_object_mut()?.remove(name)
    });
    within.unwrap_or(Value::Null)
}

impl Condition {
    fn columns<'a>(&'a self, into: &mut Vec<&'a str>) {
        match self {
            Self::All(parts) | Self::Any(parts) => {
                for part in parts {
                    part.columns(into);
                }
            }
            Self::Compared { column, .. } | Self::Null { column, .. } => into.push(column),
        }
    }

    fn holds(&self, row: &Members) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.holds(row)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(row)),
            Self::Null { column, is } => value_of(row, column).is_null() == *is,
            Self::Compared {
                column,
                operator,
                with,
            } => compared(&value_of(row, column), with).is_some_and(|found| operator.allows(found)),
        }
    }
}

/// How a value stands to what it is compared with; `None` where they cannot be compared. A text that is a number, as each
/// value of CSV is a text, is compared as that number.
fn compared(value: &Value, with: &Literal) -> Option<std::cmp::Ordering> {
    match (value, with) {
        (Value::Number(value), Literal::Number(with)) => value.as_f64()?.partial_cmp(with),
        (Value::String(value), Literal::Number(with)) => {
            value.trim().parse::<f64>().ok()?.partial_cmp(with)
        }
        (Value::String(value), Literal::Text(with)) => Some(value.as_str().cmp(with)),
        (Value::Number(value), Literal::Text(with)) => Some(value.to_string().as_str().cmp(with)),
        (Value::Bool(value), Literal::Flag(with)) => Some(value.cmp(with)),
        (Value::String(value), Literal::Flag(with)) => {
            Some(value.to_lowercase().parse::<bool>().ok()?.cmp(with))
        }
        _ => None,
    }
}

impl Operator {
    fn of(text: &str) -> Option<Self> {
        Some(match text {
            "=" | "==" => Self::Equal,
            "!=" | "<>" => Self::NotEqual,
            "<" => Self::Less,
            "<=" => Self::AtMost,
            ">" => Self::Greater,
            ">=" => Self::AtLeast,
            _ => return None,
        })
    }

    fn allows(self, found: std::cmp::Ordering) -> bool {
        match self {
            Self::Equal => found.is_eq(),
            Self::NotEqual => found.is_ne(),
            Self::Less => found.is_lt(),
            Self::AtMost => found.is_le(),
            Self::Greater => found.is_gt(),
            Self::AtLeast => found.is_ge(),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Open,
    Close,
    Operator(String),
    /// With a quotation mark of whatever kind.
    Quoted(String),
    Word(String),
}

impl Token {
    fn is_word(&self, wanted: &str) -> bool {
        matches!(self, Self::Word(word) if word.eq_ignore_ascii_case(wanted))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("`(`"),
            Self::Close => f.write_str("`)`"),
            Self::Operator(text) | Self::Quoted(text) | Self::Word(text) => write!(f, "`{text}`"),
        }
    }
}

const SIGNS: &str = "=!<>";
const QUOTES: &str = "'\"`";

fn tokens(text: &str) -> Result<Vec<Token>, FilterError> {
    let mut found = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(first) = chars.next() {
        found.push(match first {
            c if c.is_whitespace() => continue,
            '(' => Token::Open,
            ')' => Token::Close,
            c if QUOTES.contains(c) => Token::Quoted(quoted(&mut chars, c)?),
            c if SIGNS.contains(c) => Token::Operator(run(&mut chars, c, |c| SIGNS.contains(c))),
            c => Token::Word(run(&mut chars, c, |c| {
                !c.is_whitespace() && !"()".contains(c) && !SIGNS.contains(c) && !QUOTES.contains(c)
            })),
        });
    }
    Ok(found)
}

fn run(chars: &mut Peekable<Chars<'_>>, first: char, goes_on: impl Fn(char) -> bool) -> String {
    let mut text = String::from(first);
    while let Some(c) = chars.next_if(|c| goes_on(*c)) {
        text.push(c);
    }
    text
}

/// What stands between quotation marks; two of them stand for one.
fn quoted(chars: &mut Peekable<Chars<'_>>, mark: char) -> Result<String, FilterError> {
    let mut text = String::new();
    while let Some(c) = chars.next() {
        if c != mark {
            text.push(c);
        } else if chars.next_if_eq(&mark).is_some() {
            text.push(mark);
        } else {
            return Ok(text);
        }
    }
    Err(FilterError(format!(
        "the quotation mark {mark} is not closed"
    )))
}

struct Parser {
    tokens: Peekable<std::vec::IntoIter<Token>>,
    depth: usize,
}

impl Parser {
    /// Conditions with `or` between them.
    fn any(&mut self) -> Result<Condition, FilterError> {
        let mut parts = vec![self.all()?];
        while self.tokens.next_if(|token| token.is_word("or")).is_some() {
            parts.push(self.all()?);
        }
        Ok(one_or(parts, Condition::Any))
    }

    /// Conditions with `and` between them, which binds first.
    fn all(&mut self) -> Result<Condition, FilterError> {
        let mut parts = vec![self.one()?];
        while self.tokens.next_if(|token| token.is_word("and")).is_some() {
            parts.push(self.one()?);
        }
        Ok(one_or(parts, Condition::All))
    }

    fn one(&mut self) -> Result<Condition, FilterError> {
        if self.tokens.next_if_eq(&Token::Open).is_none() {
            return self.compared();
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(FilterError(format!(
                "more than {MAX_DEPTH} parentheses are open at once"
            )));
        }
        let inner = self.any()?;
        self.depth -= 1;
        match self.tokens.next() {
            Some(Token::Close) => Ok(inner),
            Some(token) => Err(FilterError(format!("{token} stands where `)` should"))),
            None => Err(FilterError("a `(` is not closed".into())),
        }
    }

    fn compared(&mut self) -> Result<Condition, FilterError> {
        let column = match self.tokens.next() {
            Some(Token::Word(word)) if word.parse::<f64>().is_ok() => {
                return Err(FilterError(format!(
                    "`{word}` stands where a column should: the column comes first"
                )));
            }
            Some(Token::Word(word)) if ["and", "or", "not"].contains(&&*word.to_lowercase()) => {
                return Err(FilterError(format!(
                    "`{word}` stands where a column should; a column of this name goes into double quotes"
                )));
            }
            Some(Token::Word(name) | Token::Quoted(name)) => name,
            Some(token) => {
                return Err(FilterError(format!("{token} stands where a column should")));
            }
            None => return Err(FilterError("a column is missing at the end".into())),
        };
        let operator = match self.tokens.next() {
            Some(token) if token.is_word("is") => return self.null(column),
            Some(Token::Operator(text)) => Operator::of(&text).ok_or_else(|| {
                FilterError(format!("`{text}` is none of =, !=, <, <=, > and >="))
            })?,
            other => {
                let other = other.map_or("nothing".to_owned(), |token| token.to_string());
                return Err(FilterError(format!(
                    "{other} follows the column `{column}`, and one of =, !=, <, <=, >, >=, `is null` and \
                     `is not null` should"
                )));
            }
        };
        let with = match self.tokens.next() {
            Some(Token::Quoted(text)) => Literal::Text(text),
            Some(Token::Word(word)) => literal(&word)?,
            other => {
                let other = other.map_or("nothing".to_owned(), |token| token.to_string());
                return Err(FilterError(format!(
                    "{other} stands where what `{column}` is compared with should"
                )));
            }
        };
        Ok(Condition::Compared {
            column,
            operator,
            with,
        })
    }

    /// What follows `is`.
    fn null(&mut self, column: String) -> Result<Condition, FilterError> {
        let is = self.tokens.next_if(|token| token.is_word("not")).is_none();
        match self.tokens.next() {
            Some(token) if token.is_word("null") => Ok(Condition::Null { column, is }),
            _ => Err(FilterError(format!(
                "after `{column} is` comes `null` or `not null`"
            ))),
        }
    }
}

fn literal(word: &str) -> Result<Literal, FilterError> {
    if let Some(number) = word.parse::<f64>().ok().filter(|x| x.is_finite()) {
        return Ok(Literal::Number(number));
    }
    match word.to_lowercase().as_str() {
        "true" => Ok(Literal::Flag(true)),
        "false" => Ok(Literal::Flag(false)),
        "null" => Err(FilterError(
            "nothing is equal to null: write `is null` or `is not null`".into(),
        )),
        _ => Err(FilterError(format!(
            "`{word}` is neither a number nor true or false; a text goes into quotation marks, as '{word}'"
        ))),
    }
}

fn one_or(mut parts: Vec<Condition>, several: impl Fn(Vec<Condition>) -> Condition) -> Condition {
    if parts.len() == 1 {
        parts.remove(0)
    } else {
        several(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = r#"{"id":7,"label":"science","score":3.25,"margin":null,"abstained":false,
        "scores":{"science":3.25,"a.b":1},"n":"12","a column":"it's"}"#;

    fn keeps(condition: &str) -> bool {
        let filter: Filter = condition.parse().unwrap();
        filter.keeps(&serde_json::from_str(ROW).unwrap())
    }

    #[test]
    fn rows_stay_as_sql_would_keep_them() {
        for stays in [
            "score >= 3",
            "score>3.2",
            "label = 'science'",
            "label == \"science\"",
            "label = 'x' OR score < 4",
            "label != 'x' AND abstained = false",
            "margin is null",
            "score IS NOT NULL",
            "(score > 9 or label = 'science') and id <> 8",
            "scores.science >= 3",
            "scores.a.b = 1",
            "n > 9",
            "`a column` = 'it''s'",
            "\"a column\" is not null",
            "missing is null",
            "score > -1e3",
        ] {
            assert!(keeps(stays), "{stays}");
        }
        for goes in [
            "score >= 3.5",
            "margin > 0",
            "margin < 0",
            "margin != 0",
            "label > 3",
            "missing = 'x'",
            "missing != 'x'",
            "label = 'x' or score > 4 and id = 7",
            "scores.sports >= 0",
            "abstained = true",
            "score is null",
        ] {
            assert!(!keeps(goes), "{goes}");
        }
    }

    #[test]
    fn and_binds_before_or() {
        assert!(keeps("id = 7 or id = 8 and score > 9"));
        assert!(!keeps("(id = 7 or id = 8) and score > 9"));
    }

    #[test]
    fn the_columns_are_known() {
        let filter: Filter = "score > 1 and (scores.x < 2 or score < 9)".parse().unwrap();
        assert_eq!(filter.columns(), ["score", "scores.x"]);
        assert!(filter.reads("scores") && filter.reads("score") && !filter.reads("x"));
        assert_eq!(
            filter.to_string(),
            "score > 1 and (scores.x < 2 or score < 9)"
        );
    }

    #[test]
    fn what_is_no_condition_says_why() {
        for (text, said) in [
            ("", "a column is missing"),
            ("score", "nothing follows the column `score`"),
            ("score => 3", "`=>` is none of"),
            ("score >=", "nothing stands where"),
            ("3 <= score", "the column comes first"),
            ("label = science", "as 'science'"),
            ("label = 'science", "is not closed"),
            ("score > 3 and", "a column is missing"),
            ("score > 3 score < 4", "join two"),
            ("(score > 3", "`(` is not closed"),
            ("score > 3)", "`)` follows"),
            ("not score > 3", "`not` stands where"),
            ("score = null", "`is null`"),
            ("score is 3", "comes `null`"),
            ("score > nan", "neither a number"),
            ("score > inf", "neither a number"),
            ("score > (1)", "`(` stands where"),
        ] {
            let error = text.parse::<Filter>().unwrap_err().to_string();
            assert!(
                error.contains(said) && error.contains("write it like"),
                "{text}: {error}"
            );
        }
        let deep = format!("{}a = 1{}", "(".repeat(40), ")".repeat(40));
        assert!(deep.parse::<Filter>().is_err());
        let deep = format!("{}a = 1{}", "(".repeat(100_000), ")".repeat(100_000));
        assert!(deep.parse::<Filter>().is_err());
    }
}
