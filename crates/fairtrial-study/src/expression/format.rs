//! Python's `text % values`, for the conversions that rules use.

use super::item::Item;
use crate::value::{Amount, float_to_int};

/// Formats, or says what does not fit.
pub(super) fn percent(template: &str, values: &Item) -> Result<String, String> {
    let mut positional = match values {
        Item::Tuple(items) => items.as_slice(),
        other => std::slice::from_ref(other),
    }
    .iter();
    let mut text = String::new();
    let mut chars = template.chars().peekable();
    let mut by_key = false;
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        let mut key = None;
        if chars.peek() == Some(&'(') {
            chars.next();
            key = Some(chars.by_ref().take_while(|c| *c != ')').collect::<String>());
        }
        let mut take = |test: fn(&char) -> bool| {
            let mut taken = String::new();
            while let Some(c) = chars.next_if(test) {
                taken.push(c);
            }
            taken
        };
        let flags = take(|c| "-+ 0#".contains(*c));
        let width = take(char::is_ascii_digit);
        let precision = match take(|c| *c == '.').as_str() {
            "" => None,
            _ => Some(take(char::is_ascii_digit).parse().unwrap_or(0)),
        };
        let conversion = chars.next().ok_or("the format ends too soon")?;
        if conversion == '%' {
            text.push('%');
            continue;
        }
        let value = match (&key, values) {
            (Some(key), Item::Map(entries)) => {
                by_key = true;
                let mut entries = entries.iter();
                let found = entries.find(|(known, _)| matches!(known, Item::Text(k) if k == key));
                found
                    .map(|(_, value)| value)
                    .ok_or(format!("there is no `{key}`"))?
            }
            (Some(_), _) => return Err("a format with names needs a mapping".into()),
            (None, _) => positional
                .next()
                .ok_or("not enough values for the format")?,
        };
        let converted = convert(conversion, value, precision)?;
        text += &padded(&converted, &flags, width.parse().unwrap_or(0));
    }
    if positional.next().is_some() && !by_key && !matches!(values, Item::Map(_)) {
        return Err("not all values are used by the format".into());
    }
    Ok(text)
}

fn convert(conversion: char, value: &Item, precision: Option<usize>) -> Result<String, String> {
    let clipped = |text: String| match precision {
        Some(most) => text.chars().take(most).collect(),
        None => text,
    };
    let amount = || {
        let amount = value.amount();
        amount.ok_or(format!(
            "`%{conversion}` needs a number, not {}",
            value.kind()
        ))
    };
    match conversion {
        's' => Ok(clipped(value.to_str())),
        'r' => Ok(clipped(value.to_repr())),
        'd' | 'i' | 'u' => match amount()? {
            Amount::Int(int) => Ok(int.to_string()),
            Amount::Float(float) if float.is_finite() => Ok(float_to_int(float).to_string()),
            Amount::Float(_) => Err("a number that is not finite has no digits".into()),
        },
        'f' | 'F' => {
            let digits = precision.unwrap_or(6).min(100);
            Ok(format!("{:.digits$}", amount()?.to_float()))
        }
        'x' => match amount()? {
            Amount::Int(int) => Ok(int.to_str_radix(16)),
            Amount::Float(_) => Err("`%x` needs an integer".into()),
        },
        other => Err(format!("the conversion `%{other}` is not supported")),
    }
}

fn padded(text: &str, flags: &str, width: usize) -> String {
    let width = width.min(1000);
    let missing = width.saturating_sub(text.chars().count());
    if flags.contains('-') {
        return format!("{text}{}", " ".repeat(missing));
    }
    if flags.contains('0') {
        let (sign, digits) = match text.strip_prefix('-') {
            Some(digits) => ("-", digits),
            None => ("", text),
        };
        return format!("{sign}{}{digits}", "0".repeat(missing));
    }
    format!("{}{text}", " ".repeat(missing))
}
