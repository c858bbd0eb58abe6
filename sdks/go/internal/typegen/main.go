// Typegen writes Go types for the schemas of an OpenAPI 3.1 document.
//
// Usage:
//
//	typegen -security NAME -package NAME [-also Schema,…] [-omit Schema,…] [-queries] [-codes NAME] -out FILE DOCUMENT
//
// It takes the operations whose security names NAME, and every schema that they refer to.
//
// The document is OpenAPI 3.1: nullable types are lists such as ["string", "null"], and unions are oneOf and anyOf. The rules:
//
//   - An object is a struct. A union of objects is one struct with the fields of all of them.
//   - Optional and nullable texts, times, lists and maps are values that are omitted when they are zero; a list that is empty, but
//     not nil, is sent. Optional numbers, booleans for which false and absent differ, and objects are pointers.
//   - In a schema whose description says that null clears or removes, a nullable field is an Optional, which distinguishes null
//     from absent.
//   - A text with an enum has a named type. Equal enums share one.
//   - Any JSON is any in requests, and json.RawMessage in schemas that responses contain.
package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/format"
	"log"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// optional is the source of Optional, for packages that use it.
//
//go:embed optional.txt
var optional string

type schema struct {
	Ref         string           `json:"$ref"`
	Type        types            `json:"type"`
	Format      string           `json:"format"`
	Description string           `json:"description"`
	Properties  ordered[*schema] `json:"properties"`
	Required    []string         `json:"required"`
	Items       *schema          `json:"items"`
	Additional  additional       `json:"additionalProperties"`
	Enum        []any            `json:"enum"`
	Const       any              `json:"const"`
	Default     any              `json:"default"`
	OneOf       []*schema        `json:"oneOf"`
	AnyOf       []*schema        `json:"anyOf"`
}

// types is a name or a list of names.
type types []string

func (t *types) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*t = types{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(t))
}

// additional is false, true or a schema.
type additional struct{ schema *schema }

func (a *additional) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, []byte("false")) || bytes.Equal(data, []byte("true")) {
		return nil
	}
	return json.Unmarshal(data, &a.schema)
}

// ordered is an object that keeps the order of its members.
type ordered[T any] struct {
	keys   []string
	values map[string]T
}

func (o *ordered[T]) UnmarshalJSON(data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	if _, err := decoder.Token(); err != nil {
		return err
	}
	o.values = map[string]T{}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return err
		}
		var value T
		if err := decoder.Decode(&value); err != nil {
			return err
		}
		o.keys = append(o.keys, key.(string))
		o.values[key.(string)] = value
	}
	return nil
}

type content map[string]struct {
	Schema *schema `json:"schema"`
}

type parameter struct {
	Name        string  `json:"name"`
	In          string  `json:"in"`
	Description string  `json:"description"`
	Schema      *schema `json:"schema"`
}

type operation struct {
	ID          string           `json:"operationId"`
	Summary     string           `json:"summary"`
	Parameters  []parameter      `json:"parameters"`
	Security    []map[string]any `json:"security"`
	RequestBody struct {
		Content content `json:"content"`
	} `json:"requestBody"`
	Responses map[string]struct {
		Content content `json:"content"`
	} `json:"responses"`
}

type document struct {
	Paths      ordered[ordered[operation]] `json:"paths"`
	Components struct {
		Schemas ordered[*schema] `json:"schemas"`
	} `json:"components"`
}

// enumNames are names of enums that several schemas have.
var enumNames = map[string]string{
	"active,connected,stored":                "When",
	"very-low,low,normal,high":               "Urgency",
	"apns,fcm,webpush,webhook,hms,wns":       "PushService",
	"apns,fcm,webpush,hms,wns,webhook":       "PushService",
	"live,push,inbox":                        "PreferenceChannel",
	"unread,read,archived":                   "ItemState",
	"production,sandbox":                     "PushEnvironment",
	"development,production":                 "ChannelEnvironment",
	"never,fallback,always":                  "PushMode",
	"passive,active,time-sensitive,critical": "Level",
	"auto,ltr,rtl":                           "Direction",
}

// renamed are better names than those of their first place.
var renamed = map[string]string{
	"MeExperiment":                 "Variant",
	"NotificationRecipientOutcome": "Outcome",
	"NotificationStateTargetKind":  "TargetKind",
	"NewCampaignLane":              "Lane",
	"TopicPermissionAction":        "TopicAction",
	"TopicPermissionDecision":      "TopicDecision",
	"NamedPushTokenKind":           "PushTokenKind",
	"QuotaQuota":                   "QuotaName",
	"AppSeriesStep":                "SeriesStep",
	"DevicesToken":                 "TokenState",
	"DevicesSeen":                  "SeenState",
	"NotificationsTarget":          "NotificationTarget",
}

// nullClears matches the description of a schema whose null differs from an absent field.
var nullClears = regexp.MustCompile(`null (clears|removes)`)

// schemaNames are the types of schemas whose name a package uses for something else.
var schemaNames = map[string]string{"App": "AppState"}

// asIn matches the description of a property that has the type of another schema's.
var asIn = regexp.MustCompile("^As in `(\\w+)`\\.$")

// written are schemas whose Go types are written by hand.
var written = map[string]string{"Duration": "Duration"}

type generator struct {
	document *document
	out      bytes.Buffer
	// inResponses are schemas that a response contains.
	inResponses map[string]bool
	queue       []string
	queued      map[string]bool
	enums       map[string]string
	enumTypes   []string
	names       map[string]bool
	usesTime    bool
	usesRaw     bool
	usesStrconv bool
	usesURL     bool
	// After the types of schemas.
	tail bytes.Buffer
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("typegen: ")
	security := flag.String("security", "", "the security scheme of the operations")
	name := flag.String("package", "", "the package of the file")
	also := flag.String("also", "", "further schemas")
	omit := flag.String("omit", "", "schemas without a type")
	queries := flag.Bool("queries", false, "also write structs for the query parameters of lists")
	codes := flag.String("codes", "", "the name of a type for the codes of Problem")
	out := flag.String("out", "", "the file")
	flag.Parse()
	if err := run(*security, *name, list(*also), list(*omit), *queries, *codes, *out, flag.Arg(0)); err != nil {
		log.Fatal(err)
	}
}

func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}

func run(security, name string, also, omit []string, queries bool, codes, out, path string) error {
	if security == "" || name == "" || out == "" || path == "" {
		return errors.New("-security, -package, -out and a document are required")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	g := &generator{document: &document{}, inResponses: map[string]bool{}, queued: map[string]bool{}, enums: map[string]string{}, names: map[string]bool{}}
	if err := json.Unmarshal(data, g.document); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, schema := range omit {
		g.queued[schema] = true
	}
	g.roots(security)
	for _, schema := range also {
		if _, ok := g.document.Components.Schemas.values[schema]; !ok {
			return fmt.Errorf("there is no schema %s", schema)
		}
		g.enqueue(schema)
	}
	if codes != "" {
		g.names[codes] = true
		g.enum(codes, g.document.Components.Schemas.values["Problem"].Properties.values["code"])
	}
	source, err := g.file(name, func() {
		if queries {
			g.queries(security)
		}
	})
	if err != nil {
		return err
	}
	return os.WriteFile(out, source, 0o644)
}

// roots enqueues the schemas of operations with this security scheme.
func (g *generator) roots(security string) {
	for _, path := range g.document.Paths.keys {
		operations := g.document.Paths.values[path]
		for _, method := range operations.keys {
			op := operations.values[method]
			if !slices.ContainsFunc(op.Security, func(s map[string]any) bool { _, ok := s[security]; return ok }) {
				continue
			}
			for _, body := range op.RequestBody.Content {
				g.visit(body.Schema, func(name string) { g.enqueue(name) }, map[string]bool{})
			}
			for status, response := range op.Responses {
				if !strings.HasPrefix(status, "2") {
					continue
				}
				for _, body := range response.Content {
					g.visit(body.Schema, func(name string) {
						g.enqueue(name)
						g.inResponses[name] = true
					}, map[string]bool{})
				}
			}
		}
	}
}

// queries declares a struct for the query parameters of each operation that has several.
func (g *generator) queries(security string) {
	for _, path := range g.document.Paths.keys {
		op, ok := g.document.Paths.values[path].values["get"]
		if !ok || !slices.ContainsFunc(op.Security, func(s map[string]any) bool { _, ok := s[security]; return ok }) {
			continue
		}
		parameters := slices.DeleteFunc(slices.Clone(op.Parameters), func(p parameter) bool { return p.In != "query" })
		if len(parameters) < 2 {
			continue
		}
		var fields, values bytes.Buffer
		title := strings.ToUpper(op.ID[:1]) + op.ID[1:]
		for _, parameter := range parameters {
			kind := g.plain(title+goName(parameter.Name), parameter.Schema, false)
			field := goName(parameter.Name)
			fields.WriteString(comment("", parameter.Description, "\t"))
			fmt.Fprintf(&fields, "\t%s %s\n", field, kind)
			switch kind {
			case "time.Time":
				fmt.Fprintf(&values, "\tif !q.%s.IsZero() {\n\t\tvalues.Set(%q, q.%s.UTC().Format(time.RFC3339Nano))\n\t}\n", field, parameter.Name, field)
			case "int64":
				g.usesStrconv = true
				fmt.Fprintf(&values, "\tif q.%s != 0 {\n\t\tvalues.Set(%q, strconv.FormatInt(q.%s, 10))\n\t}\n", field, parameter.Name, field)
			case "bool":
				fmt.Fprintf(&values, "\tif q.%s {\n\t\tvalues.Set(%q, \"true\")\n\t}\n", field, parameter.Name)
			default:
				fmt.Fprintf(&values, "\tif q.%s != \"\" {\n\t\tvalues.Set(%q, string(q.%s))\n\t}\n", field, parameter.Name, field)
			}
		}
		g.usesURL = true
		name := title + "Query"
		g.tail.WriteString("\n" + comment(name+": ", "the parameters of GET "+path+". Zero values are omitted.", ""))
		fmt.Fprintf(&g.tail, "type %s struct {\n%s}\n\nfunc (q %s) values() url.Values {\n\tvalues := url.Values{}\n%s\treturn values\n}\n", name, fields.Bytes(), name, values.Bytes())
	}
}

// visit calls found for each schema that s refers to, directly or not.
func (g *generator) visit(s *schema, found func(string), seen map[string]bool) {
	if s == nil {
		return
	}
	if s.Ref != "" {
		name := target(s.Ref)
		if !seen[name] {
			seen[name] = true
			found(name)
			g.visit(g.document.Components.Schemas.values[name], found, seen)
		}
		return
	}
	for _, key := range s.Properties.keys {
		g.visit(s.Properties.values[key], found, seen)
	}
	for _, part := range slices.Concat(s.OneOf, s.AnyOf, []*schema{s.Items, s.Additional.schema}) {
		g.visit(part, found, seen)
	}
}

func target(ref string) string { return ref[strings.LastIndex(ref, "/")+1:] }

func (g *generator) enqueue(name string) {
	if _, ok := written[name]; ok || g.queued[name] {
		return
	}
	g.queued[name] = true
	g.names[name] = true
	g.queue = append(g.queue, name)
}

// file writes the types of schemas, and then what more adds.
func (g *generator) file(name string, more func()) ([]byte, error) {
	slices.SortFunc(g.queue, func(a, b string) int {
		keys := g.document.Components.Schemas.keys
		return cmp.Compare(slices.Index(keys, a), slices.Index(keys, b))
	})
	for i := 0; i < len(g.queue); i++ {
		g.declare(g.queue[i], g.document.Components.Schemas.values[g.queue[i]], g.inResponses[g.queue[i]])
	}
	more()
	var head bytes.Buffer
	fmt.Fprintf(&head, "// Code generated by internal/typegen from crates/api/openapi.json. DO NOT EDIT.\n\npackage %s\n", name)
	var imports []string
	if g.usesRaw || bytes.Contains(g.out.Bytes(), []byte("Optional[")) {
		imports = append(imports, `"encoding/json"`)
	}
	if g.usesURL {
		imports = append(imports, `"net/url"`)
	}
	if g.usesStrconv {
		imports = append(imports, `"strconv"`)
	}
	if g.usesTime {
		imports = append(imports, `"time"`)
	}
	if len(imports) > 0 {
		fmt.Fprintf(&head, "\nimport (\n%s\n)\n", strings.Join(imports, "\n"))
	}
	head.Write(g.out.Bytes())
	head.Write(g.tail.Bytes())
	if bytes.Contains(g.out.Bytes(), []byte("Optional[")) {
		_, support, _ := strings.Cut(optional, "\n\n")
		head.WriteString("\n" + support)
	}
	for _, enum := range g.enumTypes {
		head.WriteString(enum)
	}
	source, err := format.Source(head.Bytes())
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, head.Bytes())
	}
	return source, nil
}

func (g *generator) declare(name string, s *schema, inResponse bool) {
	name = cmp.Or(schemaNames[name], name)
	s, _ = withoutNull(s)
	switch {
	case len(s.Enum) > 0:
		g.enum(name, s)
	case isUnionOfObjects(s):
		merged := &schema{Type: types{"object"}, Description: s.Description}
		merged.Properties.values = map[string]*schema{}
		for _, part := range s.OneOf {
			for _, key := range part.Properties.keys {
				property := part.Properties.values[key]
				if known, ok := merged.Properties.values[key]; ok {
					merged.Properties.values[key] = merge(known, property)
					continue
				}
				merged.Properties.keys = append(merged.Properties.keys, key)
				merged.Properties.values[key] = property
			}
		}
		g.structure(name, merged, inResponse)
	case len(s.Properties.keys) > 0:
		g.structure(name, s, inResponse)
	default:
		g.comment(name+": ", s.Description, "")
		fmt.Fprintf(&g.out, "type %s %s\n", name, g.plain(name, s, inResponse))
	}
}

// merge unites the constants of a discriminator; other fields keep their first form.
func merge(a, b *schema) *schema {
	if a.Const == nil && len(a.Enum) == 0 || b.Const == nil {
		return a
	}
	values := slices.Clone(a.Enum)
	if a.Const != nil {
		values = []any{a.Const}
	}
	return &schema{Type: types{"string"}, Enum: append(values, b.Const)}
}

func isUnionOfObjects(s *schema) bool {
	return len(s.OneOf) > 0 && !slices.ContainsFunc(s.OneOf, func(part *schema) bool { return len(part.Properties.keys) == 0 })
}

func (g *generator) structure(name string, s *schema, inResponse bool) {
	type nested struct {
		name   string
		schema *schema
	}
	var inner []nested
	var fields bytes.Buffer
	for _, key := range s.Properties.keys {
		property := s.Properties.values[key]
		bare, isNullable := withoutNull(property)
		if other := asIn.FindStringSubmatch(bare.Description); other != nil {
			bare, _ = withoutNull(g.document.Components.Schemas.values[other[1]].Properties.values[key])
		}
		isRequired := slices.Contains(s.Required, key)
		typeName := name + singular(goName(key), bare)
		typeName = cmp.Or(renamed[typeName], typeName)
		if object := objectOf(bare); object != nil {
			inner = append(inner, nested{typeName, object})
		}
		description := cmp.Or(property.Description, bare.Description)
		kind := g.plain(typeName, bare, inResponse)
		option := ""
		switch {
		case isNullable && nullClears.MatchString(s.Description):
			kind, option = "Optional["+kind+"]", ",omitzero"
		case isNullable && isRequired && strings.HasSuffix(name, "Change"):
			kind = "*" + kind
		case isRequired && !isNullable:
		case g.needsPointer(bare, kind, description):
			kind, option = "*"+kind, ",omitzero"
		default:
			option = ",omitzero"
		}
		if description != "RFC 3339, UTC." {
			fields.WriteString(comment("", description, "\t"))
		}
		fmt.Fprintf(&fields, "\t%s %s `json:\"%s%s\"`\n", goName(key), kind, key, option)
	}
	g.comment(name+": ", s.Description, "")
	fmt.Fprintf(&g.out, "type %s struct {\n%s}\n", name, fields.Bytes())
	for _, one := range inner {
		if !g.names[one.name] {
			g.names[one.name] = true
			g.declare(one.name, one.schema, inResponse)
		}
	}
}

// hasThreeStates reports whether false and absent differ. The document says so in words only.
func hasThreeStates(description string) bool {
	return strings.Contains(strings.ToLower(description), "default") || strings.Contains(description, "`false`")
}

// needsPointer reports whether the zero value means something else than an absent field.
func (g *generator) needsPointer(s *schema, kind, description string) bool {
	switch {
	case kind == "int64", kind == "float64":
		return true
	case kind == "bool":
		return hasThreeStates(description)
	case kind == "string", kind == "time.Time", kind == "any", kind == "Duration", kind == "json.RawMessage":
		return false
	case strings.HasPrefix(kind, "[]"), strings.HasPrefix(kind, "map["):
		return false
	}
	if known, ok := g.document.Components.Schemas.values[kind]; ok {
		return len(known.Enum) == 0
	}
	return objectOf(s) != nil
}

// objectOf is the inline object of a property, or of the elements of a list or a map.
func objectOf(s *schema) *schema {
	s, _ = withoutNull(s)
	switch {
	case s.Ref != "":
		return nil
	case len(s.Properties.keys) > 0 || isUnionOfObjects(s):
		return s
	case s.Items != nil:
		return objectOf(s.Items)
	case s.Additional.schema != nil:
		return objectOf(s.Additional.schema)
	}
	return nil
}

// plain is the Go type of a schema that is neither null nor absent. Inline objects and enums get typeName.
func (g *generator) plain(typeName string, s *schema, inResponse bool) string {
	s, _ = withoutNull(s)
	if s.Ref != "" {
		name := target(s.Ref)
		if hand, ok := written[name]; ok {
			return hand
		}
		g.enqueue(name)
		return cmp.Or(schemaNames[name], name)
	}
	if len(s.Enum) > 0 && (len(s.Type) == 0 || s.Type[0] == "string") {
		return g.enum(typeName, s)
	}
	if len(s.Properties.keys) > 0 || isUnionOfObjects(s) {
		return typeName
	}
	kind := ""
	if len(s.Type) == 1 {
		kind = s.Type[0]
	}
	switch {
	case kind == "string" && s.Format == "date-time":
		g.usesTime = true
		return "time.Time"
	case kind == "string":
		return "string"
	case kind == "integer":
		return "int64"
	case kind == "number":
		return "float64"
	case kind == "boolean":
		return "bool"
	case kind == "array":
		return "[]" + g.plain(typeName, s.Items, inResponse)
	case kind == "object" && s.Additional.schema != nil:
		element, isNullable := withoutNull(s.Additional.schema)
		text := g.plain(typeName, element, inResponse)
		if isNullable {
			text = "*" + text
		}
		return "map[string]" + text
	case kind == "object":
		return "map[string]any"
	}
	switch s.Const.(type) {
	case string:
		return "string"
	case bool:
		return "bool"
	case float64:
		return "int64"
	}
	if inResponse && len(s.AnyOf) == 0 {
		g.usesRaw = true
		return "json.RawMessage"
	}
	return "any"
}

func (g *generator) enum(name string, s *schema) string {
	var values []string
	for _, value := range s.Enum {
		if text, ok := value.(string); ok {
			values = append(values, text)
		}
	}
	key := strings.Join(values, ",")
	sorted := enumKey(s)
	if known, ok := g.enums[sorted]; ok {
		return known
	}
	name = cmp.Or(enumNames[key], renamed[name], name)
	g.enums[sorted] = name
	g.names[name] = true
	var text bytes.Buffer
	text.WriteString("\n")
	text.WriteString(comment(name+": ", cmp.Or(s.Description, "one of the constants below; a later version of the service may add values."), ""))
	fmt.Fprintf(&text, "type %s string\n\nconst (\n", name)
	for _, value := range values {
		fmt.Fprintf(&text, "\t%s%s %s = %q\n", name, goName(value), name, value)
	}
	text.WriteString(")\n")
	g.enumTypes = append(g.enumTypes, text.String())
	return name
}

// enumKey is the same for enums with the same values.
func enumKey(s *schema) string {
	var values []string
	for _, value := range s.Enum {
		if text, ok := value.(string); ok {
			values = append(values, text)
		}
	}
	slices.Sort(values)
	return strings.Join(values, ",")
}

// withoutNull is the schema of the other values, and whether null is allowed.
func withoutNull(s *schema) (*schema, bool) {
	isNull := func(part *schema) bool { return len(part.Type) == 1 && part.Type[0] == "null" }
	parts := slices.Concat(s.AnyOf, s.OneOf)
	if slices.ContainsFunc(parts, isNull) {
		rest := slices.DeleteFunc(parts, isNull)
		if len(rest) == 1 {
			bare := *rest[0]
			bare.Default = cmp.Or(bare.Default, s.Default)
			return &bare, true
		}
		return &schema{Description: s.Description, AnyOf: rest}, true
	}
	if len(s.Type) > 1 && slices.Contains(s.Type, "null") {
		bare := *s
		bare.Type = slices.DeleteFunc(slices.Clone(s.Type), func(name string) bool { return name == "null" })
		return &bare, true
	}
	return s, false
}

func (g *generator) comment(subject, text, indent string) {
	g.out.WriteString("\n" + comment(subject, text, indent))
}

// comment wraps at 100 columns.
func comment(subject, text, indent string) string {
	if text == "" {
		if subject == "" {
			return ""
		}
		text = "the schema of this name in openapi.json."
	}
	var out strings.Builder
	for n, paragraph := range strings.Split(subject+text, "\n\n") {
		if n > 0 {
			out.WriteString(indent + "//\n")
		}
		line := indent + "//"
		for _, word := range strings.Fields(paragraph) {
			if len([]rune(line))+1+len([]rune(word)) > 100 && line != indent+"//" {
				out.WriteString(line + "\n")
				line = indent + "//"
			}
			line += " " + word
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}

var initialisms = map[string]string{
	"id": "ID", "ids": "IDs", "url": "URL", "ttl": "TTL", "jwks": "JWKS", "jwt": "JWT", "apns": "APNs", "fcm": "FCM", "hms": "HMS", "wns": "WNS",
	"ios": "IOS", "eta": "ETA", "vapid": "VAPID", "http": "HTTP", "https": "HTTPS", "sse": "SSE", "mqtt": "MQTT", "xmpp": "XMPP", "json": "JSON",
	"s": "Seconds", "csrf": "CSRF", "webpush": "WebPush", "websocket": "WebSocket", "socketio": "SocketIO", "hs256": "HS256", "p256dh": "P256DH", "tcp": "TCP", "api": "API",
	"unifiedpush": "UnifiedPush",
}

func goName(name string) string {
	var out strings.Builder
	for _, word := range strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if known, ok := initialisms[strings.ToLower(word)]; ok {
			out.WriteString(known)
			continue
		}
		out.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return out.String()
}

// singular names an element of a list.
func singular(name string, s *schema) string {
	isList := s.Items != nil || s.Additional.schema != nil
	switch {
	case isList && strings.HasSuffix(name, "ies"):
		return strings.TrimSuffix(name, "ies") + "y"
	case isList && strings.HasSuffix(name, "s") && !strings.HasSuffix(name, "Series"):
		return strings.TrimSuffix(name, "s")
	}
	return name
}
