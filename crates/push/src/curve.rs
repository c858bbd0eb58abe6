//! Computes the public key of a private key on the curve P-256 (FIPS 186-4 D.1.2.3), for keys that come without it: 32
//! bytes of a VAPID key, or PKCS#8 without its optional part. `ring` signs, but requires both halves.
//!
//! Runs once when a credential is read. It is not constant-time. Its correctness is not critical: `ring` compares the
//! result with its own and rejects a wrong one.

/// A field element, little-endian, in Montgomery form (times 2^256 modulo the prime).
type Element = [u64; 4];

/// 2^256 - 2^224 + 2^192 + 2^96 - 1
const PRIME: Element = [0xffff_ffff_ffff_ffff, 0x0000_0000_ffff_ffff, 0, 0xffff_ffff_0000_0001];
/// 2^512 modulo the prime: converts a number into Montgomery form.
const SQUARE: Element =
    [0x0000_0000_0000_0003, 0xffff_fffb_ffff_ffff, 0xffff_ffff_ffff_fffe, 0x0000_0004_ffff_fffd];
const GENERATOR_X: Element =
    [0xf4a1_3945_d898_c296, 0x7703_7d81_2deb_33a0, 0xf8bc_e6e5_63a4_40f2, 0x6b17_d1f2_e12c_4247];
const GENERATOR_Y: Element =
    [0xcbb6_4068_37bf_51f5, 0x2bce_3357_6b31_5ece, 0x8ee7_eb4a_7c0f_9e16, 0x4fe3_42e2_fe1a_7f9b];

/// Jacobian coordinates; `z` of zero is the point at infinity.
#[derive(Clone, Copy)]
struct Point {
    x: Element,
    y: Element,
    z: Element,
}

/// The uncompressed point (SEC 1 §2.3.3). None: the key is 0 or not below the order of the group.
pub(crate) fn public_key(private_key: &[u8; 32]) -> Option<[u8; 65]> {
    let one = into_form([1, 0, 0, 0]);
    let generator = Point { x: into_form(GENERATOR_X), y: into_form(GENERATOR_Y), z: one };
    let mut sum = Point { x: one, y: one, z: [0; 4] };
    for bit in (0..256).map(|at| private_key[at / 8] >> (7 - at % 8) & 1) {
        sum = double(&sum);
        if bit == 1 {
            sum = add(&sum, &generator);
        }
    }
    if sum.z == [0; 4] {
        return None;
    }
    let inverse = invert(&sum.z);
    let square = multiply(&inverse, &inverse);
    let x = multiply(&sum.x, &square);
    let y = multiply(&sum.y, &multiply(&square, &inverse));
    let mut encoded = [4; 65];
    for (part, element) in encoded[1..].chunks_exact_mut(32).zip([x, y]) {
        // Times 1 leaves Montgomery form.
        let element = multiply(&element, &[1, 0, 0, 0]);
        for (bytes, limb) in part.chunks_exact_mut(8).zip(element.iter().rev()) {
            bytes.copy_from_slice(&limb.to_be_bytes());
        }
    }
    Some(encoded)
}

/// "dbl-2001-b" of the Explicit-Formulas Database, for curves with a = -3.
fn double(p: &Point) -> Point {
    let delta = multiply(&p.z, &p.z);
    let gamma = multiply(&p.y, &p.y);
    let beta = multiply(&p.x, &gamma);
    let product = multiply(&subtract(&p.x, &delta), &plus(&p.x, &delta));
    let alpha = plus(&plus(&product, &product), &product);
    let beta4 = times4(&beta);
    let x = subtract(&multiply(&alpha, &alpha), &plus(&beta4, &beta4));
    let yz = plus(&p.y, &p.z);
    let z = subtract(&subtract(&multiply(&yz, &yz), &gamma), &delta);
    let gamma_square4 = times4(&multiply(&gamma, &gamma));
    let y = subtract(&multiply(&alpha, &subtract(&beta4, &x)), &plus(&gamma_square4, &gamma_square4));
    Point { x, y, z }
}

/// "add-2007-bl" of the same source, with its two exceptions.
fn add(p: &Point, q: &Point) -> Point {
    if p.z == [0; 4] {
        return *q;
    }
    let (zz1, zz2) = (multiply(&p.z, &p.z), multiply(&q.z, &q.z));
    let (u1, u2) = (multiply(&p.x, &zz2), multiply(&q.x, &zz1));
    let s1 = multiply(&p.y, &multiply(&q.z, &zz2));
    let s2 = multiply(&q.y, &multiply(&p.z, &zz1));
    if u1 == u2 {
        return match s1 == s2 {
            true => double(p),
            false => Point { x: p.x, y: p.y, z: [0; 4] },
        };
    }
    let h = subtract(&u2, &u1);
    let h2 = plus(&h, &h);
    let i = multiply(&h2, &h2);
    let j = multiply(&h, &i);
    let half = subtract(&s2, &s1);
    let r = plus(&half, &half);
    let v = multiply(&u1, &i);
    let x = subtract(&subtract(&multiply(&r, &r), &j), &plus(&v, &v));
    let s1j = multiply(&s1, &j);
    let y = subtract(&multiply(&r, &subtract(&v, &x)), &plus(&s1j, &s1j));
    let z = plus(&p.z, &q.z);
    let z = multiply(&subtract(&subtract(&multiply(&z, &z), &zz1), &zz2), &h);
    Point { x, y, z }
}

fn into_form(number: Element) -> Element {
    multiply(&number, &SQUARE)
}

fn times4(a: &Element) -> Element {
    let twice = plus(a, a);
    plus(&twice, &twice)
}

/// Fermat: the power p - 2.
fn invert(a: &Element) -> Element {
    let exponent = [PRIME[0] - 2, PRIME[1], PRIME[2], PRIME[3]];
    let mut result = into_form([1, 0, 0, 0]);
    for bit in (0..256).rev().map(|at| exponent[at / 64] >> (at % 64) & 1) {
        result = multiply(&result, &result);
        if bit == 1 {
            result = multiply(&result, a);
        }
    }
    result
}

/// Montgomery multiplication, word by word. The prime is -1 modulo 2^64, so each step's factor is the lowest word.
fn multiply(a: &Element, b: &Element) -> Element {
    let mut sum = [0_u64; 6];
    for word in b {
        let carry = accumulate(&mut sum, a, *word);
        (sum[4], sum[5]) = add_carry(sum[4], carry, sum[5]);
        let factor = sum[0];
        let carry = accumulate(&mut sum, &PRIME, factor);
        (sum[4], sum[5]) = add_carry(sum[4], carry, sum[5]);
        sum = [sum[1], sum[2], sum[3], sum[4], sum[5], 0];
    }
    reduce([sum[0], sum[1], sum[2], sum[3]], sum[4])
}

/// Adds `a` times `factor` to the lowest four words. Returns the carry.
fn accumulate(sum: &mut [u64; 6], a: &Element, factor: u64) -> u64 {
    let mut carry = 0_u128;
    for (to, limb) in sum.iter_mut().zip(a) {
        carry += u128::from(*to) + u128::from(*limb) * u128::from(factor);
        *to = carry as u64;
        carry >>= 64;
    }
    carry as u64
}

fn add_carry(a: u64, b: u64, high: u64) -> (u64, u64) {
    let (sum, overflow) = a.overflowing_add(b);
    (sum, high + u64::from(overflow))
}

fn plus(a: &Element, b: &Element) -> Element {
    let (sum, carry) = add_limbs(a, b);
    reduce(sum, carry)
}

fn subtract(a: &Element, b: &Element) -> Element {
    match subtract_limbs(a, b) {
        (difference, false) => difference,
        // Negative by less than the prime; the carry of the sum is the borrow.
        (difference, true) => add_limbs(&difference, &PRIME).0,
    }
}

/// Reduces a number below twice the prime.
fn reduce(number: Element, high: u64) -> Element {
    match subtract_limbs(&number, &PRIME) {
        (_, true) if high == 0 => number,
        (difference, _) => difference,
    }
}

fn add_limbs(a: &Element, b: &Element) -> (Element, u64) {
    let mut carry = 0_u128;
    let mut sum = [0; 4];
    for (to, (a, b)) in sum.iter_mut().zip(a.iter().zip(b)) {
        carry += u128::from(*a) + u128::from(*b);
        *to = carry as u64;
        carry >>= 64;
    }
    (sum, carry as u64)
}

fn subtract_limbs(a: &Element, b: &Element) -> (Element, bool) {
    let mut difference = [0; 4];
    let mut borrowed = false;
    for (to, (a, b)) in difference.iter_mut().zip(a.iter().zip(b)) {
        let (first, under) = a.overflowing_sub(*b);
        let (second, under_again) = first.overflowing_sub(u64::from(borrowed));
        (*to, borrowed) = (second, under || under_again);
    }
    (difference, borrowed)
}

#[cfg(test)]
mod tests {
    use p256::elliptic_curve::sec1::ToSec1Point as _;
    use proptest::prelude::*;

    use super::*;

    fn theirs(private_key: &[u8; 32]) -> Option<[u8; 65]> {
        let key = p256::SecretKey::from_slice(private_key).ok()?;
        key.public_key().to_sec1_point(false).as_bytes().try_into().ok()
    }

    #[test]
    fn edge_cases_match_another_implementation() {
        let mut order = [0xff; 32];
        order[4..8].copy_from_slice(&[0; 4]);
        order[16..].copy_from_slice(&0xbce6_faad_a717_9e84_f3b9_cac2_fc63_2551_u128.to_be_bytes());
        assert_eq!(public_key(&order), None);
        assert_eq!(public_key(&[0; 32]), None);
        for (at, change) in [(31, 1_u8), (31, 2), (31, 3), (0, 1), (16, 0x80)] {
            let mut key = [0; 32];
            key[at] = change;
            assert_eq!(public_key(&key), theirs(&key), "{at} {change}");
        }
        order[31] -= 1;
        assert_eq!(public_key(&order), theirs(&order));
        assert!(theirs(&order).is_some());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn random_keys_match_another_implementation(mut key: [u8; 32]) {
            // Below the group's order.
            key[0] &= 0x7f;
            key[31] |= 1;
            prop_assert_eq!(public_key(&key), theirs(&key));
        }
    }
}
