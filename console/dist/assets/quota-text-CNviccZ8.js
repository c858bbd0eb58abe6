import{al as n,C as e}from"./base-DKAR4960.js";const r=(t,s)=>t.endsWith("_bytes")?n(s):t.endsWith("_per_second")?`${e(s)}/s`:e(s);export{r as s};
