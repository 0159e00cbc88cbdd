//! Named amounts of resources, as `hard`, `used`, `requests` and `limits` hold them.

use std::collections::BTreeMap;
use std::fmt;

use pintle_machinery::quantity::Quantity;
use serde_json::Value;

/// Amounts by resource name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Amounts(BTreeMap<String, Quantity>);

impl Amounts {
    /// Nothing named.
    pub fn new() -> Self {
        Self::default()
    }

    /// From a JSON map of quantities; what is no quantity is left out.
    pub fn from_json(map: &Value) -> Self {
        let entries = map.as_object().into_iter().flatten();
        Self(entries.filter_map(|(name, amount)| Some((name.clone(), quantity(amount)?))).collect())
    }

    /// As a JSON map of canonical quantities.
    pub fn to_json(&self) -> Value {
        self.0.iter().map(|(name, amount)| (name.clone(), Value::String(amount.to_string()))).collect()
    }

    /// The amount of one resource, if it is named.
    pub fn get(&self, name: &str) -> Option<Quantity> {
        self.0.get(name).copied()
    }

    /// Sets the amount of one resource.
    pub fn set(&mut self, name: impl Into<String>, amount: Quantity) {
        self.0.insert(name.into(), amount);
    }

    /// Adds to the amount of one resource.
    pub fn add(&mut self, name: &str, amount: Quantity) {
        match self.0.get_mut(name) {
            Some(sum) => *sum += amount,
            None => self.set(name, amount),
        }
    }

    /// Adds all amounts of another.
    pub fn add_all(&mut self, other: &Self) {
        other.iter().for_each(|(name, amount)| self.add(name, amount));
    }

    /// Takes all amounts of another away.
    pub fn subtract_all(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            let left = self.get(name).unwrap_or_default() - amount;
            self.set(name, left);
        }
    }

    /// Raises each amount to what another has.
    pub fn raise_to(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            if self.get(name).is_none_or(|own| own < amount) {
                self.set(name, amount);
            }
        }
    }

    /// Only the named resources.
    pub fn masked<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let named = names.into_iter().filter_map(|name| Some((name.to_owned(), self.get(name)?)));
        Self(named.collect())
    }

    /// Without the amounts that are zero.
    pub fn without_zeros(mut self) -> Self {
        self.0.retain(|_, amount| !amount.is_zero());
        self
    }

    /// The amounts that are greater than zero.
    pub fn positive(mut self) -> Self {
        self.0.retain(|_, amount| amount.sign() > 0);
        self
    }

    /// The names whose amount is greater than the bound of the same name; what has no bound is never greater.
    pub fn above(&self, bounds: &Self) -> Vec<&str> {
        self.iter()
            .filter(|(name, amount)| bounds.get(name).is_some_and(|bound| bound < *amount))
            .map(|e| e.0)
            .collect()
    }

    /// The names whose amount is negative.
    pub fn negative(&self) -> Vec<&str> {
        self.iter().filter(|(_, amount)| amount.sign() < 0).map(|(name, _)| name).collect()
    }

    /// Each name with its amount, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Nothing is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Amounts {
    /// `cpu=1,pods=2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, amount)) in self.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{name}={amount}")?;
        }
        Ok(())
    }
}

/// A JSON quantity: text, or a number as clients also write it.
pub fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arithmetic() {
        let mut sum = Amounts::from_json(&json!({"cpu": "500m", "pods": "1"}));
        sum.add_all(&Amounts::from_json(&json!({"cpu": "1", "memory": "1Gi"})));
        assert_eq!(sum.to_string(), "cpu=1500m,memory=1Gi,pods=1");
        assert_eq!(sum.above(&Amounts::from_json(&json!({"cpu": "1", "pods": 1}))), ["cpu"]);
        sum.subtract_all(&Amounts::from_json(&json!({"cpu": "1500m", "pods": "2"})));
        assert_eq!(sum.negative(), ["pods"]);
        assert_eq!(sum.clone().without_zeros().masked(["memory", "cpu"]).to_json(), json!({"memory": "1Gi"}));
    }
}
