// A form from a JSON Schema: which fields it has, and the arguments that their texts mean. No DOM here.

const SIMPLE = { string: "text", integer: "integer", number: "number", boolean: "boolean" };

/** The fields of a flat object schema; one that no simple field fits is `json`. */
export function fieldsOf(schema, values) {
  const properties = schema?.properties ?? {};
  const names = [...new Set([...Object.keys(properties), ...Object.keys(values)])];
  return names.map((name) => field(name, own(properties, name) ?? {}, own(values, name), schema?.required ?? []));
}

const own = (object, name) => (Object.hasOwn(object, name) ? object[name] : undefined);

function field(name, schema, value, required) {
  const kind = kindOf(schema, value);
  return {
    name, kind, required: required.includes(name), description: schema.description ?? "",
    options: schema.enum ?? null, min: schema.minimum, max: schema.maximum,
    longest: schema.maxLength, text: textOf(kind, value),
  };
}

function kindOf(schema, value) {
  if (Array.isArray(schema.enum) && schema.enum.every((one) => typeof one === "string")) return "choice";
  if (schema.type === "array" && schema.items?.type === "string" && plainList(value)) return "list";
  const kind = SIMPLE[schema.type] ?? SIMPLE[guess(value)] ?? "json";
  return kind === "text" && (schema.maxLength ?? 0) > 200 ? "long" : kind;
}

const plainList = (value) => value === undefined || (Array.isArray(value) && value.every((one) => !/[,\n]/.test(one)));

function guess(value) {
  if (Number.isInteger(value)) return "integer";
  return typeof value;
}

function textOf(kind, value) {
  if (value === undefined) return "";
  if (kind === "list") return value.join(", ");
  return kind === "json" ? JSON.stringify(value, null, 2) : String(value);
}

/** What is wrong with what was typed: `field` is its name. */
export class BadField extends Error {
  constructor(field, rule) {
    super(`${field}: ${rule}`);
    this.field = field;
    this.rule = rule;
  }
}

/** The arguments that `texts` (by field name) mean; empty optional fields are left out. Throws `BadField`. */
export function argumentsOf(fields, texts) {
  const found = Object.create(null);
  for (const one of fields) {
    const text = texts[one.name] ?? "";
    if (text === "" && !(one.required && ["text", "long"].includes(one.kind))) {
      if (one.required) throw new BadField(one.name, "required");
      continue;
    }
    found[one.name] = READ[one.kind](text, one.name);
  }
  return found;
}

const READ = {
  text: (text) => text,
  long: (text) => text,
  choice: (text) => text,
  list: (text) => text.split(/[,\n]/).map((one) => one.trim()).filter(Boolean),
  boolean: (text) => text === "true",
  integer: (text, name) => number(text, name, Number.isSafeInteger),
  number: (text, name) => number(text, name, Number.isFinite),
  json: (text, name) => {
    try {
      return JSON.parse(text);
    } catch {
      throw new BadField(name, "json");
    }
  },
};

function number(text, name, fits) {
  const value = Number(text);
  if (!fits(value)) throw new BadField(name, "number");
  return value;
}
