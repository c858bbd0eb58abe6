package io.noroshi.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.math.BigDecimal;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class JsonTest {
    private static Object parse(String text) throws Json.SyntaxError {
        return Json.parse(text);
    }

    @Test
    void readsValues() throws Exception {
        assertEquals(
                Map.of("a", List.of(1L, -2L, 0.5, 1e3, true, false), "b", Map.of()),
                parse(" { \"a\" : [1,-2,0.5,1E3,true,false] , \"b\":{} } "));
        assertEquals(Arrays.asList((Object) null), parse("[null]"));
        assertEquals("\"\\/\b\f\n\r\té", parse("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\""));
        assertEquals(Long.MAX_VALUE, parse("9223372036854775807"));
        assertEquals(Long.MIN_VALUE, parse("-9223372036854775808"));
        assertEquals(new BigDecimal("9223372036854775808"), parse("9223372036854775808"));
    }

    @Test
    void rejectsWhatIsNotJson() {
        for (String text : List.of(
                "",
                " ",
                "{",
                "[",
                "[1",
                "[1,]",
                "{\"a\"}",
                "{\"a\":}",
                "{\"a\":1,}",
                "{a:1}",
                "01",
                "-",
                "1.",
                "1e",
                ".5",
                "+1",
                "nul",
                "\"",
                "\"\\x\"",
                "\"\\u12g4\"",
                "\"\n\"",
                "[1] 2",
                "'a'",
                "NaN",
                "[".repeat(1_000))) assertThrows(Json.SyntaxError.class, () -> Json.parse(text), text);
    }

    @Test
    void writesWhatItReads() throws Exception {
        String text = "{\"a\":[1,-2,0.5,true,null],\"b\":{\"c\":\"\\\"\\\\\\n\\u0001é\"},\"d\":[],\"e\":{}}";
        assertEquals(text, Json.write(Json.parse(text)));
        assertEquals("\"\\ud800\"", Json.write("\ud800"));
        assertThrows(IllegalArgumentException.class, () -> Json.write(Double.NaN));
        assertThrows(IllegalArgumentException.class, () -> Json.write(new Object()));
    }
}
