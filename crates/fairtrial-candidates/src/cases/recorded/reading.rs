//! Recorded values from JSON, as they come: what a hostile file nests and repeats is held once. (`untagged` would hold
//! each level once more.)

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{Recorded, Tagged};

impl<'de> Deserialize<'de> for Recorded {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(RecordedVisitor)
    }
}

struct RecordedVisitor;

impl<'de> Visitor<'de> for RecordedVisitor {
    type Value = Recorded;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a recorded value")
    }

    fn visit_unit<E>(self) -> Result<Recorded, E> {
        Ok(Recorded::None)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Recorded, E> {
        Ok(Recorded::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Recorded, E> {
        Ok(Recorded::Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Recorded, E> {
        let small = i64::try_from(value);
        small
            .map(Recorded::Int)
            .map_err(|_| E::custom("an integer of more than 64 bits is written as text"))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Recorded, E> {
        Ok(Recorded::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Recorded, E> {
        Ok(Recorded::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Recorded, E> {
        Ok(Recorded::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Recorded, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Recorded::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Recorded, A::Error> {
        let tagged = Tagged::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Recorded::Other(Box::new(tagged)))
    }
}
