"""Corners of the syntax and of the environment that types do not lead to, one expression per line."""

from __future__ import annotations

from typing import Final

_TEXT: Final = r"""
google.protobuf.Int32Value{value: 1}
google.protobuf.StringValue{value: 'a'}
google.protobuf.BoolValue{}
google.protobuf.Value{}
google.protobuf.Struct{fields: {'a': google.protobuf.Value{number_value: 1.0}}}
google.protobuf.ListValue{}
google.protobuf.Any{}
google.protobuf.Duration{seconds: 1}
google.protobuf.Timestamp{seconds: 5}
google.protobuf.NullValue.NULL_VALUE
google.protobuf.Int64Value{}
google.protobuf.DoubleValue{value: 1}
google.protobuf.UInt32Value{value: 7u}
google.protobuf.BytesValue{value: b'a'}
google.protobuf.Empty{}
google.protobuf.Int32Value{?value: optional.of(1)}
google.protobuf.Int64Value{value: null}
kubernetes.DRADevice{}
Unknown{}
.device.driver
.device
device.attributes.`gpu.example.com`.model
device.`driver`
{'a b': 1}.`a b`
device.attributes.x
device.nothing
device.capacity.x.y
(true // comment
1 in [1] in [true]
1 < 2 == true
!true == false
-1.5 < 1
- 1 < 1
--1
!!true
!-1
-!true
1 - -1
1--1
[1, 2, 3][1] + 1
{'a': {'b': [1]}}.a.b[0]
true ? 1 : false ? 2 : 3
true ? false ? 1 : 2 : 3
1 + 2 * 3 - 4 / 2 % 3
'a' 'b'
a
int
type
dyn
null
type(null)
has(device.attributes['a.b'].?x)
has(device)
has({'a': 1}.a)
has(dyn({}).a)
size
size(1)
[].all(x, y)
[1].map(x)
[1].exists(1, true)
[1].all(x.y, true)
[[1]].all(x, x.all(x, x == 1))
[1].all(device, device == 1)
[1].all(x, x == 1) && [2].all(x, x == 2)
in
as
1 = 1
1 === 1
true and true
true & true
1 ? 2 : 3
if
'\q'
'\400'
'\377'
b'\u0041'
b'\400'
rb'z'
kubernetes.Quantity
type(quantity('1')) == kubernetes.Semver
0x
1.
.5.5
1u.5
1e
0b1
1_000
9223372036854775808
-9223372036854775808
- 9223372036854775808
18446744073709551616u
1e309
-1u
0xG
''''
r'\'
r'\''
#
$a
cel.bind(a.b, 1, true)
cel.bind(1, 1, true)
bind(a, 1, true)
cel.bind(cel, 1, cel.bind(x, 2, cel + x)) == 3
optional.of(1).optMap(1, 1)
[1].sortBy(x, y)
[3, 1].sortBy(x, [x])
[3, 1].map(x, x).sortBy(y, -y) == [3, 1]
cel
[optional.of(1)].unwrapOpt()
{?'a': optional.none()}
[?1]
{?1: 1}
{1: 1, 1: 2}
{'a': 1, ?'a': optional.of(2)}
device.?driver
device[?'driver']
device['driver']
device.attributes['a.b'].?a.?b.orValue(1)
device.attributes['a.b'].?a[?0].?b
device.attributes[?'a.b'].x.orValue(2) == 1
device.attributes['nope'].?x.hasValue()
device.attributes[?'nope'].?x.hasValue()
optional.none().or(optional.of(1)).value()
optional.none().value()
optional.of(optional.of(1))
optional.of(optional.none()).hasValue()
optional.ofNonZeroValue(0)
optional.none() == optional.none()
optional.none().orValue(1 / 0)
optional.of(1).orValue(1 / 0)
optional.of(1 / 0).orValue(1)
1.0 == 1
1u == 1
'1' == 1
[1] == [1.0]
{1: 1} == {1u: 1}
1 == dyn(1u)
dyn([1]) == dyn([1.0])
dyn({1: 1}) == dyn({1u: 1.0})
1.0 in {1: 2}
dyn(1.0) in dyn({1: 2})
{1: 'a'}[dyn(1.0)]
{1u: 'a'}[dyn(1)]
{1: 'a'}[dyn(1.5)]
[1, 2][dyn(1.0)]
[1, 2][dyn(1.5)]
[1, 2][dyn(1u)]
[1][dyn('a')]
dyn({})['a']
dyn(1)['a']
dyn(1).a
dyn('a').b
dyn([1]).a
dyn(null).a
duration('1s').getSeconds() == 1
timestamp(0).getFullYear() == 1970
'a'.format([])
'%s'.format([device])
'%s'.format([{'b': 1, 'a': [1.5, null]}])
'%d'.format([1.0])
'%s'.format([quantity('1Gi')])
'%s'.format([ip('::1')])
'%s'.format([optional.of(1)])
'%s'.format([type(1)])
'%s'.format([b'abc'])
'%s'.format([duration('1h1s')])
'%s'.format([timestamp(0)])
'%x'.format(['aé'])
'%x'.format([b'\x01'])
'%x'.format([-255])
'%b'.format([true])
'%e'.format([1052.032911275])
'%.3e'.format([2u])
'%f'.format(['NaN'])
'%.2f'.format([2])
string(1e21)
string(0.1)
string(1e-7)
string(100000.0)
string(12345678901234567890u)
string(b'\xff')
string(double('NaN'))
string(null)
string([1])
double('0x1p3')
double('1_0')
double(' 1')
double('1e400')
double('infinity')
double('.5')
int('1_0')
int(' 1')
int('+1')
int('-0')
uint('-1')
uint('+1')
bool('TRUE')
bool('t')
bool('yes')
bool('1')
int(1.9)
int(-1.9)
int(9.3e18)
int(double('NaN'))
uint(-1)
uint(1.9)
uint(1.8446744073709552e19)
int('0x1f')
bytes('é')
timestamp('2024-01-01T00:00:00Z') - timestamp('2023-01-01T00:00:00Z')
timestamp('9999-12-31T23:59:59Z') + duration('1s')
timestamp('0001-01-01T00:00:00Z') - duration('1s')
duration('1h') * 2
duration('2562047h') + duration('2562047h')
9223372036854775807 + 1
-9223372036854775808 - 1
9223372036854775807 * 2
-9223372036854775808 / -1
-9223372036854775808 % -1
-(-9223372036854775808)
1 / 0
1 % 0
1u / 0u
1.0 / 0.0
0u - 1u
18446744073709551615u + 1u
false && 1 / 0 == 0
1 / 0 == 0 && false
1 / 0 == 0 || true
(1 / 0 == 0) ? true : false
[1, 0].exists(x, 1 / x == 1)
[0, 1].exists(x, 1 / x == 1)
[0, 1].all(x, 1 / x == 2)
[0, 1].exists_one(x, 1 / x == 1)
size(device.attributes)
device == device
device.attributes == device.attributes
device.capacity['gpu.example.com'] == {}
type(device.attributes)
type(device.capacity)
type(device)
type(device.attributes['a.b'].x)
'abc'.substring(2, 1)
'abc'.charAt(3)
'abc'.indexOf('', 3)
'abc'.lastIndexOf('')
'abc'.split('', 2)
'abc'.split('b', 0)
'abc'.split('b', -1)
'abc'.replace('', '-')
'abc'.replace('b', '', 0)
'日本語'.substring(1)
'日本語'.indexOf('語')
' \u00a0\u2003x\u0085 '.trim()
'ÀÉ'.lowerAscii()
strings.quote('a\u0001\n"\\\U0001F600')
[1, 2, 3].slice(1, 5)
[1, 2, 3].slice(2, 1)
[3, 1, 2].sort()
[1, 'a'].sort()
['b', 'a'].max()
[].max()
[].sum()
[1, 2.0].sum()
[1.5, 2].sum()
[double('NaN'), 1.0].max()
[1, 1u, 1.0].distinct()
[[1], [1.0]].distinct().size()
lists.range(-1)
[1, [2, [3]]].flatten()
[1, [2, [3, [4]]]].flatten(2)
[1].flatten(-1)
sets.contains([1], [1.0, 1u])
sets.intersects([], [])
quantity('1Gi') == quantity('1024Mi')
quantity('1') == quantity('1000m')
quantity('1.5').asInteger()
quantity('8Ei').add(quantity('8Ei')).isInteger()
quantity('').isInteger()
semver('1.0.0+a') == semver('1.0.0+b')
semver('v1.0', true) == semver('1.0.0')
semver('1.0.0-rc.1').isLessThan(semver('1.0.0'))
semver('18446744073709551615.0.0').major() > 0
ip('::ffff:1.2.3.4') == ip('1.2.3.4')
ip('1.2.3.4').family() == 4
cidr('10.0.0.0/8').containsIP('10.1.2.3')
cidr('10.0.0.0/8').containsIP('bad')
cidr('::/0').containsIP('1.2.3.4')
cidr('10.0.0.0/8').containsCIDR('10.0.0.0/33')
url('https://a.b:80/c d').getHost()
url('/a?b=c').getQuery()['b'][0]
format.named('dns1123Label').value().validate('a_b')
format.uuid().validate('x').value().size()
format.dns1123Label().validate('ok').hasValue()
"""
ODDITIES: Final = tuple(_TEXT.strip().splitlines())
